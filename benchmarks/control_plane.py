"""Measure whether the orchestrator keeps up with many nodes: one real orchestrator process, and simulated agents of up to thousands of
nodes.

    python benchmarks/control_plane.py --agents 128,512,2048 --losses 5 --json control_plane.json

For every number of agents an orchestrator is started as `understudy run` starts it, and as many simulated agents
(`simulated_agents.py`) connect to it over loopback, with `--ranks` workers each, and some additional nodes that have spares only. Then:

- the time until every rank is assigned;
- the steady state, `--seconds` long: the orchestrator's processor time as a share of one core, and its resident memory, while every
  agent sends the pages of its workers at each heartbeat;
- `--losses` times, the loss of a whole node, which falls silent. The orchestrator notices that after `node_lost` seconds (*detect*).
  All other times start when it knows, according to its report: to the first and the last command of the first wave
  (Abort, Assign, KillWorker) that any agent has read; from the last Quiesced to the last Recover; to the end of the incident, when every
  rank's first commit has been handled. Simulated workers need `--settle` seconds to stop, which are part of the last figure;
- a kill of the orchestrator itself: the time until the next one has replayed the journal and serves, until all agents are back, and
  one more loss, to see that it goes on.

Orchestrator and agents share this machine's clock. The orchestrator is pinned to one core and the agents to others where there are any.
What the agents' process needs to read and write is inside all figures; real agents have a host each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvloop
from rich.console import Console

import evidence
from control_plane_results import Loss, Result, line, record, show
from simulated_agents import Fleet, Node
from understudy.common.names import JOURNAL
from understudy.core.model import JobSpec, Timeouts
from understudy.orchestrator.settings import Settings

LIMIT = 300.0  # seconds to wait for anything


class Orchestrator:
    """An orchestrator's process, started as `understudy run` does."""

    def __init__(self, folder: Path, settings: Settings, cores: set[int], mine: set[int], profile: str) -> None:
        self._folder = folder
        self._settings = settings
        self._cores, self._mine = cores, mine
        self._profile = profile
        self._port = 0
        folder.mkdir(parents=True)
        self.log = (folder / "orchestrator.log").open("wb")

    def start(self) -> None:
        place = self._folder / "orchestrator.json"
        place.unlink(missing_ok=True)
        command = [sys.executable, *(["-m", "cProfile", "-o", self._profile] if self._profile else []), "-m", "understudy.orchestrator"]
        command += ["--run-dir", str(self._folder), "--spec-json", self._settings.to_json(), "--port", str(self._port), "--die-with-parent"]
        os.sched_setaffinity(0, self._cores)  # which the process inherits
        try:
            self.process = subprocess.Popen(command, stderr=self.log, start_new_session=True)
        finally:
            os.sched_setaffinity(0, self._mine)
        began = time.monotonic()
        while not place.exists():
            if self.process.poll() is not None or time.monotonic() - began > LIMIT:
                raise SystemExit(f"the orchestrator did not start:\n{self.has()}")
            time.sleep(0.01)
        self.url = str(json.loads(place.read_text())["url"])
        self._port = int(self.url.rsplit(":", 1)[1])
        self.token = (self._folder / "token").read_text().strip()
        self.usage = psutil.Process(self.process.pid)

    def has(self) -> str:
        return (self._folder / "orchestrator.log").read_text()

    async def get(self, what: str) -> Any:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {self.token}"}, timeout=LIMIT) as client:
            answer = await client.get(f"{self.url}/v1/jobs/{self._settings.spec.job}/{what}")
        answer.raise_for_status()
        return answer.json()

    def memory_mib(self) -> float:
        return float(self.usage.memory_info().rss / 2**20)

    def processor_seconds(self) -> float:
        times = self.usage.cpu_times()
        return float(times.user + times.system)

    def end(self, how: signal.Signals) -> None:
        """Send the signal, if the process still runs, and wait for its end."""
        self.process.send_signal(how)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Run:
    """One number of agents, measured from start to end."""

    def __init__(self, agents: int, args: argparse.Namespace, folder: Path, console: Console) -> None:
        self._args = args
        self._folder = folder
        self._console = console
        self._agents = agents
        self._chance = random.Random(f"{args.seed} {agents}")
        spec = JobSpec("benchmark", agents * args.ranks, args.ranks, agents, spares=0)
        self._limits = Timeouts(node_lost=args.node_timeout)
        self._settings = Settings(spec, self._limits)

    async def measure(self) -> Result:
        cores = sorted(os.sched_getaffinity(0))
        apart = self._args.pin and len(cores) > 1
        orchestrator = Orchestrator(
            self._folder,
            self._settings,
            {cores[0]} if self._args.pin else set(cores),
            set(cores[1:]) if apart else set(cores),
            self._args.profile,
        )
        fleet = Fleet(self._agents, self._args.ranks, self._args.spare_nodes, self._args.settle, self._limits.heartbeat)
        running: list[asyncio.Task[None]] = []
        try:
            orchestrator.start()
            fleet.url, fleet.token = orchestrator.url, orchestrator.token
            result = await self._begin(orchestrator, fleet, running)
            await self._steady(orchestrator, fleet, result)
            victims = self._chance.sample(fleet.hosts, min(self._args.losses + 1, len(fleet.hosts)))
            for node in victims[: self._args.losses]:
                loss = await self._lose(orchestrator, fleet, node)
                result.losses.append(loss)
                self._say(f"loss {len(result.losses)} of {self._args.losses}: {line(loss)}")
            result.memory_after_mib = orchestrator.memory_mib()
            began = time.monotonic()
            await orchestrator.get("status")
            result.status_seconds = time.monotonic() - began
            if not self._args.profile:
                await self._restart(orchestrator, fleet, result, victims[-1])
            await asyncio.to_thread(orchestrator.end, signal.SIGTERM)  # it ends the job, and the agents disconnect
            return result
        finally:
            os.sched_setaffinity(0, set(cores))
            for node in fleet.nodes:
                node.dark = True
            for task in running:
                task.cancel()
            orchestrator.end(signal.SIGKILL)
            await asyncio.gather(*running, return_exceptions=True)
            for node in fleet.nodes:
                node.close()
            orchestrator.log.close()

    async def _begin(self, orchestrator: Orchestrator, fleet: Fleet, running: list[asyncio.Task[None]]) -> Result:
        idle = orchestrator.memory_mib()
        began = time.time()
        running += [asyncio.create_task(node.run()) for node in fleet.nodes]
        await self._until(lambda: all(node.connected.is_set() for node in fleet.nodes), "all agents are connected", orchestrator)
        joined = time.time()
        self._say(f"{len(fleet.nodes)} agents connected in {joined - began:.1f} s")
        await self._wait(fleet.all_assigned.wait(), "every rank is assigned", orchestrator)
        self._say(f"{fleet.ranks} ranks assigned {fleet.assigned_at - joined:.2f} s after the last agent had joined")
        await self._ready(orchestrator, fleet)
        return Result(
            agents=self._agents,
            ranks=fleet.ranks,
            spare_nodes=self._args.spare_nodes,
            assigned_seconds=fleet.assigned_at - joined,
            joining_seconds=joined - began,
            processor_share=0.0,
            memory_mib=0.0,
            idle_memory_mib=idle,
            frames_per_second=len(fleet.nodes) / self._limits.heartbeat,
        )

    async def _steady(self, orchestrator: Orchestrator, fleet: Fleet, result: Result) -> None:
        await asyncio.sleep(2.0)  # until the rest of the start is written
        began, used, mine = time.monotonic(), orchestrator.processor_seconds(), time.process_time()
        await asyncio.sleep(self._args.seconds)
        passed = time.monotonic() - began
        result.processor_share = (orchestrator.processor_seconds() - used) / passed
        result.memory_mib = orchestrator.memory_mib()
        share = (time.process_time() - mine) / passed
        self._say(
            f"steady: {result.processor_share:.1%} of a core, {result.memory_mib:.0f} MiB (the agents' process: {share:.1%} of a core)"
        )
        if (await orchestrator.get("report"))["incidents"]:
            raise SystemExit(f"a node was lost although none was silent: this machine is too slow for so many agents\n{orchestrator.has()}")

    async def _lose(self, orchestrator: Orchestrator, fleet: Fleet, node: Node) -> Loss:
        await self._ready(orchestrator, fleet)
        before = len((await orchestrator.get("report"))["incidents"])
        incident = fleet.lose(node)
        for event, what in (
            (incident.warned, "every survivor has its Abort"),
            (incident.met, "every rank has its Recover"),
            (incident.over, "every rank has committed"),
        ):
            await self._wait(event.wait(), what, orchestrator)
        report: list[dict[str, Any]] = []

        async def closed() -> bool:
            report[:] = (await orchestrator.get("report"))["incidents"]
            return len(report) > before and report[before]["seconds"] is not None

        while not await closed():  # noqa: ASYNC110 - it is another process that we wait for
            await asyncio.sleep(0.2)
        node.close()
        fleet.incident = None
        found = report[before]
        if len(report) > before + 1 or len(found["ranks"]) != self._args.ranks:
            raise SystemExit(f"more was lost than one node: this machine is too slow for so many agents\n{orchestrator.has()[-2000:]}")
        detect = found["phases"]["detect"]
        known = found["fault_at"] + detect
        seconds = {
            "detect": detect,
            "first command": incident.first - known,
            "last command": incident.last - known,
            "wave": incident.last - incident.first,
            "decision": incident.recovered - incident.quiesced,
            "closed": found["seconds"] - detect,
        }
        return Loss(node.name, seconds, incident.frames, found)

    async def _restart(self, orchestrator: Orchestrator, fleet: Fleet, result: Result, last: Node) -> None:
        orchestrator.end(signal.SIGKILL)
        began = time.monotonic()
        await asyncio.to_thread(orchestrator.start)
        serving = time.monotonic()
        result.replay_seconds = serving - began
        await self._until(lambda: all(n.connected.is_set() for n in fleet.nodes if not n.dark), "all agents are back", orchestrator)
        result.back_seconds = time.monotonic() - serving
        result.events, result.journal_mib = await asyncio.to_thread(_journal, self._folder / JOURNAL)
        self._say(
            f"restart: {result.events} events replayed and serving after {result.replay_seconds:.1f} s, "
            f"agents back {result.back_seconds:.1f} s later"
        )
        if not last.dark:
            result.after_restart = await self._lose(orchestrator, fleet, last)
            self._say(f"loss after the restart: {line(result.after_restart)}")

    async def _ready(self, orchestrator: Orchestrator, fleet: Fleet) -> None:
        """Wait until there are enough spares for a node."""
        await self._until(lambda: fleet.spares() >= self._args.ranks, "spares are there", orchestrator)
        await asyncio.sleep(self._args.pause)  # the steady state between two losses

    async def _until(self, there: Callable[[], bool], what: str, orchestrator: Orchestrator) -> None:
        async def wait() -> None:
            while not there():  # noqa: ASYNC110 - thousands of nodes, of which each has an event
                await asyncio.sleep(0.01)

        await self._wait(wait(), what, orchestrator)

    async def _wait(self, event: Awaitable[Any], what: str, orchestrator: Orchestrator) -> None:
        waiting = asyncio.ensure_future(event)
        end = time.monotonic() + LIMIT
        told = time.monotonic()
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=1.0)
            if orchestrator.process.poll() is not None or time.monotonic() > end:
                waiting.cancel()
                raise SystemExit(f"not within {LIMIT:.0f} s, or the orchestrator has ended: {what}\n{orchestrator.has()[-2000:]}")
            if time.monotonic() - told > 5.0:
                told = time.monotonic()
                self._say(f"waiting until {what} ...")

    def _say(self, text: str) -> None:
        self._console.print(f"{self._agents} agents: {text}", highlight=False)


def _journal(file: Path) -> tuple[int, float]:
    """Return the journal's number of events, and its size in MiB."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute("select count(*) from events").fetchone()
    return int(count), file.stat().st_size / 2**20


def raise_limit(agents: int) -> None:
    """Raise the limit of sockets of this process and, by inheritance, of the orchestrator. Exits with a message if the system does not
    allow enough.
    """
    needed = agents + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SystemExit(f"{agents} agents need {needed} open files, and this machine allows {hard} (ulimit -Hn): ask for fewer --agents")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="128,512,2048", help="numbers of nodes with ranks, by comma (128,512,2048)")
    parser.add_argument("--ranks", type=int, default=8, help="workers of a node (8)")
    parser.add_argument("--spare-nodes", type=int, default=4, help="nodes with as many spares and no ranks (4)")
    parser.add_argument("--losses", type=int, default=5, help="nodes to lose, one after the other (5)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the steady state (10)")
    parser.add_argument("--settle", type=float, default=0.1, help="seconds that a worker needs to come to rest after an Abort (0.1)")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between an incident and the next loss (2)")
    parser.add_argument("--node-timeout", type=float, default=Timeouts().node_lost, help="seconds of silence after which a node is lost")
    parser.add_argument(
        "--pin", action=argparse.BooleanOptionalAction, default=True, help="orchestrator and agents each on cores of their own"
    )
    parser.add_argument("--profile", default="", help="file for a cProfile of the orchestrator, which makes it several times slower")
    parser.add_argument("--seed", type=int, default=0, help="chooses the nodes to lose")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "control-plane")
    parser.add_argument("--keep", default="", help="folder for run directories and logs; default: none are kept")
    args = parser.parse_args()
    numbers = [int(number) for number in args.agents.split(",")]
    raise_limit(max(numbers) + args.spare_nodes)
    if args.losses > min(numbers):
        parser.error("there must be a node with ranks for each of the --losses")
    console = Console()
    folder = Path(args.keep or tempfile.mkdtemp(prefix="understudy-benchmark-"))
    results: list[Result] = []
    try:
        for agents in numbers:
            results.append(uvloop.run(Run(agents, args, folder / str(agents), console).measure()))
        table = show(results, console)
        if args.write:
            evidence.write_table(args.write, table)
    finally:
        if args.json and results:
            Path(args.json).write_text(json.dumps(record(results, args), indent=1) + "\n")
        if not args.keep:
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
