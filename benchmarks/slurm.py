"""A node of a Slurm job loses its power: how long until it trains again, ours beside Slurm's own way, on a real Slurm cluster.

    python benchmarks/slurm.py --times 5 --json slurm.json

The cluster is the one of the tests (`tests/slurm/cluster.py`: real slurmctld, six slurmd, each on a host of its own that can be
switched off; needs root and Debian's Slurm). Four nodes train (`peers/training.py`, one rank each), in turns:

    spare node     understudy run --spare-nodes 1, on five nodes
    floating spare understudy run --floating-spares 1, on four: the fifth is asked for from Slurm, where it is idle
    requeued       srun torchrun on four, with a checkpoint each `--every` steps: Slurm notices the node, and starts the job again

    noticed        from the power to: the node is lost (by our journal); to Slurm's word that it is down
    trains again   from the power to a step, committed by every rank, that nobody had committed before

and for the planned case, with the spare node: `scontrol update state=drain`, to the taint and to the rank's new place. Slurm's own answer
to a drain is to wait for the job's end. SlurmdTimeout is 10 s here, and 300 s where nobody has changed it: Slurm notices nothing before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from recovery import ROOT, machine

sys.path.insert(0, str(ROOT))

from tests.slurm.cluster import SLURMD_TIMEOUT, Cluster, cluster, why_not

from peers.log import Reader

RANKS, WARM_UP = 4, 20  # steps before anything happens
LIMIT = 900.0  # seconds for anything
SRUN = "srun --no-kill --kill-on-bad-exit=0 --wait=0"
UNDERSTUDY = f"{SRUN} understudy run --drill off {{options}} -m peers.entry_understudy {{training}}"
TORCHRUN = """first=$(scontrol show hostnames | head -1)
export RDZV=127.0.1.${first#n}:$((20000 + SLURM_JOB_ID)) GLOO_SOCKET_IFNAME=lo
srun bash -c 'torchrun --nnodes 4 --rdzv-backend c10d --rdzv-endpoint $RDZV --rdzv-id $SLURM_JOB_ID-$SLURM_RESTART_COUNT \\
  --local-addr 127.0.1.${SLURMD_NODENAME#n} -m peers.entry_plain {training} --every {every}'
"""

Figures = dict[str, list[float]]


def until(condition: Callable[[], Any], what: str, pace: float = 0.05) -> Any:
    """What it gives, once that is true."""
    start = time.monotonic()
    while not (found := condition()):
        if time.monotonic() - start > LIMIT:
            raise SystemExit(f"{what}: not within {LIMIT:.0f} s")
        time.sleep(pace)
    return found


class Job:
    """One that trains on the cluster until it is cancelled."""

    def __init__(self, slurm: Cluster, line: str, nodes: int, options: str, model: str) -> None:
        self.slurm = slurm
        self.folder = slurm.home("alice") / "job"
        slurm.run("alice", "mkdir", str(self.folder))
        self.log = Reader(self.folder / "log")
        training = f"--model {model} --steps 1000000 --record {self.log.path} --folder {self.folder}"
        path = f"export PYTHONPATH={slurm.variables['PYTHONPATH']}:{ROOT / 'benchmarks'}"
        header = f"#!/bin/bash\n#SBATCH --nodes={nodes} --gres=gpu:4 --output=output.txt --open-mode=append {options}\n"
        (self.folder / "job.sh").write_text(f"{header}{path}\n{line.replace('{training}', training)}\n")
        self.number = slurm.run("alice", "sbatch", "--parsable", "job.sh", folder=self.folder).strip()

    def committed(self) -> int:
        self.log.refresh()
        return self.log.committed(RANKS)

    def trains(self) -> None:
        until(lambda: self.committed() >= WARM_UP, f"step {WARM_UP} of {self.folder / 'output.txt'}")

    def again(self, step: int) -> float:
        """When every rank had committed a step beyond `step`."""
        until(lambda: self.committed() > step, "training, again")
        times = [
            min(line.time for line in self.log.lines if line.what == "commit" and (line.rank, line.step) == (rank, step + 1))
            for rank in range(RANKS)
        ]
        return max(times)

    def beyond(self) -> int:
        """The last step that any rank has begun."""
        self.log.refresh()
        return max((line.step for line in self.log.lines if line.what == "commit"), default=0)

    def ask(self, what: str) -> Any:
        run = self.folder / "understudy-runs" / f"slurm-{self.number}.0-n1"
        words = [sys.executable, "-m", "understudy.cli", *what.split(), "--json", "--run-dir", str(run)]
        return json.loads(self.slurm.run("alice", *words))

    def time_of(self, kind: str, node: str) -> float:
        """The last event of this kind with this node."""
        run = self.folder / "understudy-runs" / f"slurm-{self.number}.0-n1"
        lines = self.slurm.run("alice", sys.executable, "-m", "understudy.cli", "events", "--json", "--run-dir", str(run)).splitlines()
        found = [event for event in map(json.loads, lines) if event["type"] == kind and node in json.dumps(event)]
        return float(found[-1]["time"])


def loses(job: Job, ours: bool) -> dict[str, float]:
    job.trains()
    step, moment = job.beyond(), time.time()
    job.slurm.nodes["n3"].off()
    if ours:
        again = job.again(step)
        noticed = job.time_of("NodesLost", "n3")
    else:
        until(lambda: job.slurm.states()["n3"].startswith("down"), "Slurm to notice", 0.2)
        noticed = time.time()
        again = job.again(step)
    return {"noticed": noticed - moment, "trains again": again - moment}


def leaves(job: Job) -> dict[str, float]:
    job.trains()
    moment = time.time()
    job.slurm.run("root", "scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=patch")
    (incident,) = until(lambda: [one for one in job.ask("report")["incidents"] if one["seconds"] is not None], "the move")
    tainted = job.time_of("NodeTainted", "n3")
    return {
        "drained: taint": tainted - moment,
        "drained: pause": incident["seconds"],
        "drained: new place": incident["fault_at"] + incident["seconds"] - moment,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A node of a Slurm job loses its power.")
    parser.add_argument("--times", type=int, default=5, help="of each way")
    parser.add_argument("--every", type=int, default=20, help="steps between the checkpoints of torchrun's job")
    parser.add_argument("--model", default="1M", help="see peers/sizes.py")
    parser.add_argument("--json", default="", help="file for all figures")
    args = parser.parse_args()
    if why := why_not():
        raise SystemExit(why)
    spare = UNDERSTUDY.replace("{options}", "--spare-nodes 1")
    floating = UNDERSTUDY.replace("{options}", "--floating-spares 1")
    ways: dict[str, tuple[str, int, str, Callable[[Job], dict[str, float]]]] = {
        "spare node": (spare, 5, "--no-kill", lambda job: loses(job, True)),
        "floating spare": (floating, 4, "--no-kill", lambda job: loses(job, True)),
        "drained": (spare, 5, "--no-kill", leaves),
        "requeued": (TORCHRUN.replace("{every}", str(args.every)), 4, "--requeue", lambda job: loses(job, False)),
    }
    found: dict[str, Figures] = {way: {} for way in ways}
    with tempfile.TemporaryDirectory(prefix="understudy-slurm-") as folder, cluster(Path(folder) / "c") as slurm:
        for turn in range(args.times):
            for way, (line, nodes, options, measure) in ways.items():
                slurm.begin()
                for row, value in measure(Job(slurm, line, nodes, options, args.model)).items():
                    found[way].setdefault(row, []).append(value)
                slurm.end()
                shown = ", ".join(f"{row} {values[-1]:.2f} s" for row, values in found[way].items())
                print(f"{turn + 1}/{args.times} {way}: {shown}", flush=True)
    table = Table(f"{args.model} model, 4 ranks; SlurmdTimeout {SLURMD_TIMEOUT} s", "seconds, median (min to max)", "requeued / it")
    for way, rows in found.items():
        for row, values in rows.items():
            median, theirs = statistics.median(values), found["requeued"].get(row, [])
            ratio = f"{statistics.median(theirs) / median:.1f}" if theirs and way != "requeued" else ""
            table.add_row(f"{way}: {row}" if row not in way else way, f"{median:.2f} ({min(values):.2f} to {max(values):.2f})", ratio)
    Console().print(table)
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(), "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
