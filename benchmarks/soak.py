"""Run a job under random faults for any length of time; check every incident, and compare the end state with an undisturbed run.

    python benchmarks/soak.py --incidents 300 --seed 1 --json soak.json

Trains `soak_job.py` with `--ranks` ranks and `--spares` spares, and injects faults of the registry one after the other: which, into which
rank and at which point of the step comes from `--seed`. Now and then a second one strikes in the recovery from the first. Ends when there
were so many `--incidents`, or after `--minutes`, whichever is first. Then:

- each fault must have had the outcome that the registry expects of it;
- each incident must be over, belong to a fault, have lost no step, and have verified its newcomers' digests;
- the journal, which is read when the job has ended, must have them all;
- the complete state of all ranks, with the loss of every step, must be bit by bit that of the same training under torchrun.

It also shows, by the point at which ranks were lost, how often a survivor had reached its vote, so that the redo was compared with that.
Exit code 0 only if all of it is true. Faults that this machine cannot inject, and those that end the job on purpose, are left out.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import evidence
from understudy.chaos import plan as plans
from understudy.chaos.base import Outcome
from understudy.chaos.job import Away, WatchedJob
from understudy.chaos.registry import registry
from understudy.chaos.run import Record, Result, Runner
from understudy.chaos.schedule import schedule as scheduled
from understudy.cli.chaos_command import Asked, as_values, line
from understudy.cli.target import target
from understudy.core.loss import EXPLAIN_WITHIN

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.integration.processes import send_to_group

SCRIPT = Path(__file__).with_name("soak_job.py")
LIMIT = 120.0  # seconds for the job to begin, or to end
HANG = 5.0  # seconds without progress after which a worker is lost
WEIGHTS = {
    # A rank is lost.
    "sigkill": 6,
    "sigterm": 3,
    "sigabrt": 2,
    "segfault": 3,
    "abort": 3,
    "exit": 3,
    "out_of_memory": 3,
    "sigstop": 1,
    "gil_held": 1,
    "hang": 1,
    # All ranks recover in place, after 30 s in which no rank was found to be lost.
    "socket_reset": 0.3,
    # The job goes on.
    "pause": 0.7,
    "exception_in_thread": 0.7,
    "disk_full": 0.7,
    "clock_jump": 0.7,
    "packet_drop": 0.7,
    "slow_link": 0.7,
    "agent_pause": 0.7,
    "orchestrator_kill": 0.7,
    "orchestrator_pause": 0.7,
    "journal_full": 0.7,
}
IN_STEP = ("forward", "backward", "reduced", "vote", "vote copies", "vote agreement", "vote passed", "apply", "applied", "between")
OF_NEWCOMER = ("newcomer", "attach", "transfer", "verify", "verified", "attached")
OF_SURVIVOR = ("quiesce", "attach", "donate")
TWO = "two losses in one recovery"
PAIRS = 0.1  # of the faults come with a second one in the recovery


def taken_for_hung(record: Record) -> bool:
    """Return whether a worker was considered hung: after a reset of its connections it waits longer for a loss that explains it than this
    job allows.
    """
    return record.injection.fault == "socket_reset" and record.outcome == Outcome.REPLACED and HANG < EXPLAIN_WITHIN


def make_plan(seed: int, faults: int, ranks: int, only: Collection[str] = ()) -> dict[str, Any]:
    """Make a plan, as from a file. The same arguments give the same plan. `only`: faults; empty: all."""
    chance, known = random.Random(seed), registry()
    possible = {name: weight for name, weight in WEIGHTS.items() if not known.find(name).why_not() and (not only or name in only)}
    entries: list[dict[str, Any]] = []
    while len(entries) < faults:
        after = 0.001 * len(entries)  # in this order
        rank = chance.randrange(ranks)
        if chance.random() < PAIRS:
            newcomer = chance.random() < 0.6
            other = rank if newcomer else (rank + chance.randrange(1, ranks)) % ranks
            point = chance.choice(OF_NEWCOMER if newcomer else OF_SURVIVOR)
            entries.append({"fault": "sigkill", "rank": other, "point": point, "overlap": True, "after": after})
            entries.append({"fault": "sigkill", "rank": rank, "after": after + 0.0005})
            continue
        name = chance.choices(list(possible), list(possible.values()))[0]
        fault = known.find(name)
        entry: dict[str, Any] = {"fault": name, "after": after}
        if fault.hits == "worker":
            entry["rank"] = rank
            if fault.inside is not None and (fault.outside is None or chance.random() < 0.7):
                entry["point"] = chance.choice(IN_STEP)
        entries.append(entry)
    return {"seed": seed, "fault": entries}


class Training:
    """`understudy run` in `folder`, in a new process group."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        folder.mkdir(parents=True)
        self.folder, self.run_dir = folder, folder / "run"
        command = [sys.executable, "-m", "understudy.cli", "run", "--drill", "off", "--chaos", "--hang-limit", str(args.hang_limit)]
        command += ["--run-dir", str(self.run_dir)]
        command += ["--nproc-per-node", str(args.ranks), "--spares", str(args.spares)]
        command += [str(SCRIPT), str(folder), "--pace", str(args.pace)]
        with (folder / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)

    def watch(self) -> WatchedJob:
        """Return the job, once it trains."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            if (self.run_dir / "orchestrator.json").exists():
                about = target(self.run_dir, "", "", None, None)
                assert about.server is not None
                job = WatchedJob(Asked(about), about.server.url, self.run_dir)
                with suppress(Away):
                    view = job.look()
                    if view.whole and min(job.steps(view).values()) > 0:
                        return job
                job.close()
            time.sleep(0.2)
        raise SystemExit(f"the job does not train:\n{(self.folder / 'output.txt').read_text()}")

    def finish(self) -> int:
        """Let it end after its present step. Return its exit code."""
        (self.folder / "stop").touch()
        return self.process.wait(LIMIT)

    def kill(self) -> None:
        if self.process.poll() is None:
            send_to_group(self.process.pid, signal.SIGKILL)
            self.process.wait()


def states(folder: Path, ranks: int) -> list[dict[str, str]]:
    return [json.loads((folder / f"final-{rank}.json").read_text()) for rank in range(ranks)]


def undisturbed(folder: Path, ranks: int, steps: int) -> list[dict[str, str]]:
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [str(SCRIPT), str(folder), "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the undisturbed run failed:\n{done.stderr}")
    return states(folder, ranks)


def journalled(run_dir: Path) -> list[dict[str, Any]]:
    """Return the incidents of a job that has ended."""
    command = [sys.executable, "-m", "understudy.cli", "report", "--json", "--run-dir", str(run_dir)]
    found: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["incidents"]
    return found


def check_incidents(incidents: list[dict[str, Any]], result: Result) -> list[str]:
    """Return what is wrong with the incidents in the journal."""
    seen = {number for record in result.records for number in record.incidents}
    problems = [f"incident {number} of a fault is not in the journal" for number in seen - {one["number"] for one in incidents}]
    for one in incidents:
        number = one["number"]
        if number not in seen:
            problems.append(f"incident {number} belongs to no fault: {one['ranks']} {one['notes']}")
        if one["seconds"] is None:
            problems.append(f"incident {number} is not over")
        if one["steps_lost"]:
            problems.append(f"incident {number} lost {one['steps_lost']} steps")
        if one["ranks"] and not one["digests_verified"]:
            problems.append(f"incident {number} verified no digest")
    return problems


def show(records: list[Record], console: Console) -> Table:
    table = Table("fault", "times", "outcomes", "as expected", "median, s", "max, s", box=None, padding=(0, 2, 0, 0))
    for name in sorted({record.injection.fault for record in records}):
        mine = [record for record in records if record.injection.fault == name]
        outcomes = Counter(record.outcome or "no outcome" for record in mine)
        seconds = [record.seconds for record in mine if record.seconds is not None]
        table.add_row(
            name,
            str(len(mine)),
            ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())),
            str(sum(record.met for record in mine)),
            f"{statistics.median(seconds):.2f}" if seconds else "",
            f"{max(seconds):.2f}" if seconds else "",
        )
    console.print(table)
    return table


def without_count(outcomes: str) -> str:
    """Of a fault that always had the same outcome."""
    return outcomes if "," in outcomes else outcomes.partition(" ")[2]


def redone(records: list[Record], incidents: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Return, by the point of a loss: how many there were, and in how many the transaction was rolled forward, redone, and redone and
    proven.
    """
    decided = {one["number"]: one for one in incidents}
    shared = Counter(number for record in records for number in record.incidents)
    found: dict[str, Counter[str]] = {}
    for record in records:
        if record.outcome != Outcome.REPLACED or len(record.incidents) != 1:
            continue
        number = record.incidents[0]
        incident = decided[number]
        point = TWO if shared[number] > 1 else record.point or "a random point"
        proven = incident["decision"] == "redo" and bool(incident["proven_by"])
        found.setdefault(point, Counter()).update({"losses": 1, incident["decision"]: 1, "proven": int(proven)})
    order = (*IN_STEP, "a random point", TWO)
    return {point: found[point] for point in sorted(found, key=lambda point: order.index(point) if point in order else len(order))}


def show_redone(found: dict[str, Counter[str]], console: Console) -> Table:
    table = Table("lost at", "times", "rolled forward", "redone", "of these proven", box=None, padding=(0, 2, 0, 0))
    total = sum(found.values(), Counter[str]())
    for point, count in (*found.items(), ("all", total)):
        table.add_row(point, *(str(count[what]) for what in ("losses", "roll forward", "redo", "proven")))
    console.print(table)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="A job under random faults; every incident is checked.")
    parser.add_argument("--incidents", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--spares", type=int, default=3)
    parser.add_argument("--pace", type=float, default=0.05, help="seconds to wait in each step, so that there are not too many of them")
    parser.add_argument("--hang-limit", type=float, default=HANG, help="as of `understudy run`; more on a machine that does something else")
    parser.add_argument("--faults", default="", help="of the registry, with commas between them; default: all that are in the soak")
    parser.add_argument("--json", default="", help="file for everything")
    parser.add_argument("--write", choices=("soak", "redos"), help="put the table of faults, or of redos, into docs/evidence/proof.json")
    parser.add_argument("--keep", default="", help="folder for run directory and states; default: none is kept unless something is wrong")
    args = parser.parse_args()
    folder = Path(args.keep or tempfile.mkdtemp(prefix="understudy-soak-")).absolute()
    left_out = sorted(name for name in WEIGHTS if registry().find(name).why_not())
    if left_out:
        print(f"not possible on this machine: {', '.join(left_out)}")
    plan = plans.make(make_plan(args.seed, 3 * args.incidents + 20, args.ranks, args.faults.split(",") if args.faults else ()), registry())
    schedule = scheduled(plan, registry(), args.ranks, ["node0"])

    training = Training(folder / "disturbed", args)
    began = time.monotonic()
    try:
        job = training.watch()

        def tell(record: Record) -> None:
            incidents = {number for known in runner.records for number in known.incidents}
            runner.enough = len(incidents) >= args.incidents or time.monotonic() - began > 60 * args.minutes
            if record.outcome:
                print(f"[{time.monotonic() - began:6.0f} s, {len(incidents)} incidents] {line(record)}", flush=True)

        runner = Runner(job, schedule, registry(), tell)
        result = runner.run()
        job.close()
        lasted = time.monotonic() - began
        code = training.finish()
    finally:
        training.kill()

    problems = [line(record) for record in result.records if not record.met and not taken_for_hung(record)]
    incidents = journalled(training.run_dir)
    problems += check_incidents(incidents, result)
    if code != 0:
        problems.append(f"the job's exit code is {code}: {result.message}")
        steps = -1
    else:
        final = states(training.folder, args.ranks)
        steps = int(final[0]["committed"])
        reference = undisturbed(folder / "undisturbed", args.ranks, steps)
        different = [f"rank {r}: {name}" for r in range(args.ranks) for name in reference[r] if final[r].get(name) != reference[r][name]]
        problems += [f"not as in the undisturbed run: {text}" for text in different]

    faults = show(result.records, Console())
    proofs = redone(result.records, incidents)
    redos = show_redone(proofs, Console())
    count = len({number for record in result.records for number in record.incidents})
    print(f"{len(result.records)} faults, {count} incidents, {steps} steps in {lasted:.0f} s, seed {args.seed}")
    for problem in problems:
        print(f"WRONG: {problem}")
    print("identical to the undisturbed run, bit by bit" if not problems else f"{len(problems)} problems; everything is in {folder}")
    if args.write:
        columns, rows = evidence.cells(redos if args.write == "redos" else faults)
        outcome = "identical to the undisturbed run" if not problems else f"{len(problems)} problems"
        if args.write == "soak":
            columns, rows = columns[:3], [[f"`{fault}`", times, without_count(outcomes)] for fault, times, outcomes, *_ in rows]
        evidence.record("proof", args.write, rows, columns, f"{len(result.records)} faults, {count} incidents, {steps} steps; {outcome}")
    if args.json:
        summary = {"arguments": vars(args), "seconds": lasted, "steps": steps, "incidents": count, "redone": proofs, "problems": problems}
        Path(args.json).write_text(json.dumps({**summary, **as_values(result)}, indent=1) + "\n")
    if not problems and not args.keep:
        shutil.rmtree(folder)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
