"""The agent of a node that serves any number of jobs, `understudy agent`: connects to the orchestrator and takes parts in jobs.

A *part* is what one job has on this node: a process of its own (`python -m understudy.agent`, as `understudy run` starts it) that
owns the job's workers here and talks to the orchestrator itself. So this process may be ended and started again at any time: parts, and
training, go on; the next one finds them by the files in its state folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from understudy.agent.config import AgentConfig
from understudy.agent.orchestrator_link import OrchestratorLink
from understudy.agent.tls import trusting
from understudy.links import messages
from understudy.links.messages import EndPart, Hello, PartEnded, StartPart

END = 30.0  # seconds from SIGTERM to SIGKILL of a part, which itself gives its workers time


@dataclass(frozen=True)
class NodeConfig:
    orchestrator: str
    node: str
    address: str  # where the other nodes reach this one's workers
    slots: int
    domain: str
    labels: dict[str, str]
    state: Path
    certificate: str = ""
    heartbeat: float = 0.5


@dataclass
class _Running:
    """A part's process."""

    part: messages.Part
    pid: int
    pidfd: int
    ours: subprocess.Popen[bytes] | None  # None: started by an earlier life of this agent


class NodeAgent:
    def __init__(self, config: NodeConfig, token: str, say: Callable[[str], None]) -> None:
        self._config = config
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, _Running] = {}
        self._link = OrchestratorLink(
            lambda: config.orchestrator, "/v1/agent", token, trusting(config.certificate), lambda: [self._hello()], self._obey, say
        )

    async def run(self) -> None:
        """Until cancelled. Raises `Refused`."""
        self._adopt()
        beating = self._loop.create_task(self._beat())
        try:
            await self._link.run()
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._config.heartbeat)
            if not self._link.away():
                self._link.send(self._hello())

    def _hello(self) -> Hello:
        c = self._config
        return Hello(c.node, c.address, c.slots, c.domain, c.labels, tuple(running.part for running in self._running.values()))

    def _obey(self, message: messages.Message) -> None:
        if isinstance(message, StartPart):
            if message.part.job not in self._running:
                try:
                    self._start(message)
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    self._say(f"job {message.part.job}: its part here cannot be started: {error}")
                    self._link.send(PartEnded(message.part.job, 1))
        elif isinstance(message, EndPart):
            running = self._running.get(message.job)
            if running is not None:
                signal.pidfd_send_signal(running.pidfd, signal.SIGTERM)
                self._loop.call_later(END, self._kill, running)
        else:
            self._say(f"ignored {type(message).__name__} from the orchestrator: it is not for a node")

    # -- parts --------------------------------------------------------------------------------------------------------

    def _folder(self, job: str) -> Path:
        return self._config.state / "parts" / job

    def _start(self, message: StartPart) -> None:
        part, c = message.part, self._config
        folder = self._folder(part.job)
        shutil.rmtree(folder, ignore_errors=True)  # of a part that ended and is started again
        (folder / "workers").mkdir(parents=True)
        config = AgentConfig(
            job=part.job,
            run_dir=folder,
            node=c.node,
            node_rank=part.node_rank,
            address=c.address,
            program=message.program,
            workers_per_node=message.workers_per_node,
            spares=part.spares,
            streams=True,
            domain=c.domain,
            timeouts=message.timeouts,
            orchestrator=c.orchestrator,
            certificate=c.certificate,
            role=message.role,
        )
        config.write(folder / "agent.json")
        environment = {**message.environment, "UNDERSTUDY_TOKEN": message.token}
        with (folder / "agent.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "understudy.agent", "--config", str(folder / "agent.json")],
                cwd=message.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._note(folder, part, process.pid)
        self._watch(_Running(part, process.pid, os.pidfd_open(process.pid), process))
        self._say(f"job {part.job}: node rank {part.node_rank}, {part.slots} slots, {part.spares} of them for spares")

    def _watch(self, running: _Running) -> None:
        self._running[running.part.job] = running
        self._loop.add_reader(running.pidfd, self._ended, running)

    def _ended(self, running: _Running) -> None:
        self._loop.remove_reader(running.pidfd)
        os.close(running.pidfd)
        del self._running[running.part.job]
        code = running.ours.wait() if running.ours is not None else 0  # only a parent is told
        with contextlib.suppress(OSError):
            (self._folder(running.part.job) / "part.json").unlink()
        self._say(f"job {running.part.job}: its part here has ended")
        self._link.send(PartEnded(running.part.job, code if code >= 0 else 128 - code))

    def _kill(self, running: _Running) -> None:
        if self._running.get(running.part.job) is running:
            signal.pidfd_send_signal(running.pidfd, signal.SIGKILL)

    # -- an earlier life ----------------------------------------------------------------------------------------------

    def _note(self, folder: Path, part: messages.Part, pid: int) -> None:
        """For the next life of this agent."""
        unfinished = folder / ".part.json"
        unfinished.write_text(json.dumps({"part": asdict(part), "pid": pid, "started": _started(pid)}))
        unfinished.rename(folder / "part.json")

    def _adopt(self) -> None:
        """Takes up the parts that an earlier life of this agent has started and that are still there."""
        for path in sorted((self._config.state / "parts").glob("*/part.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                noted = json.loads(path.read_text())
                pid = int(noted["pid"])
                pidfd = os.pidfd_open(pid)
                if _started(pid) != noted["started"]:  # the number belongs to another process by now
                    os.close(pidfd)
                    continue
                running = _Running(messages.Part(**noted["part"]), pid, pidfd, None)
                self._watch(running)
                self._say(f"job {running.part.job}: its part is here still, and is taken up again")


def _started(pid: int) -> int:
    """When the process was started, in clock ticks since the boot (field 22 of /proc/PID/stat)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
