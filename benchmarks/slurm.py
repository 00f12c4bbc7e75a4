"""Measure how long a Slurm job needs to train again when a node loses its power: ours, and Slurm's own way, on a real Slurm cluster.

    python benchmarks/slurm.py --times 5 --json slurm.json

The cluster is the one of the tests (`tests/slurm/cluster.py`: real slurmctld, six slurmd, each in a simulated host that can be
switched off; needs root and Debian's Slurm). Four nodes train (`peers/training.py`, one rank each), in turns:

    spare node     understudy run --spare-nodes 1, on five nodes
    floating spare understudy run --floating-spares 1, on four: the fifth is requested from Slurm, where it is idle
    requeued       srun torchrun on four, with a checkpoint each `--every` steps: Slurm notices the node, and restarts the job

    noticed        from the power loss to: the node is lost (by our journal); Slurm reports it down
    trains again   from the power loss to a step, committed by every rank, that no rank had committed before

and for the planned case, with the spare node: `scontrol update state=drain`, to the taint and to the rank's new place. Slurm's own answer
to a drain is to wait for the job's end. SlurmdTimeout is 10 s here (default: 300 s): Slurm notices nothing before.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recovery import ROOT

sys.path.insert(0, str(ROOT))

from tests.slurm.cluster import SLURMD_TIMEOUT, Cluster, cluster, why_not

from cluster_job import Figures, Trained, arguments, show, tell, until

SRUN = "srun --no-kill --kill-on-bad-exit=0 --wait=0"
UNDERSTUDY = f"{SRUN} understudy run --drill off {{options}} -m peers.entry_understudy {{training}}"
TORCHRUN = """first=$(scontrol show hostnames | head -1)
export RDZV=127.0.1.${first#n}:$((20000 + SLURM_JOB_ID)) GLOO_SOCKET_IFNAME=lo
srun bash -c 'torchrun --nnodes 4 --rdzv-backend c10d --rdzv-endpoint $RDZV --rdzv-id $SLURM_JOB_ID-$SLURM_RESTART_COUNT \\
  --local-addr 127.0.1.${SLURMD_NODENAME#n} -m peers.entry_plain {training} --every {every}'
"""


class Job(Trained):
    """A job that trains on the cluster until it is cancelled."""

    def __init__(self, slurm: Cluster, line: str, nodes: int, options: str, model: str) -> None:
        self.slurm = slurm
        super().__init__(slurm.home("alice") / "job")
        slurm.run("alice", "mkdir", str(self.folder))
        training = f"--model {model} --steps 1000000 --record {self.log.path} --folder {self.folder}"
        path = f"export PYTHONPATH={slurm.variables['PYTHONPATH']}:{ROOT / 'benchmarks'}"
        header = f"#!/bin/bash\n#SBATCH --nodes={nodes} --gres=gpu:4 --output=output.txt --open-mode=append {options}\n"
        (self.folder / "job.sh").write_text(f"{header}{path}\n{line.replace('{training}', training)}\n")
        self.number = slurm.run("alice", "sbatch", "--parsable", "job.sh", folder=self.folder).strip()

    def ask(self, what: str) -> Any:
        run = self.folder / "understudy-runs" / f"slurm-{self.number}.0-n1"
        words = [sys.executable, "-m", "understudy.cli", *what.split(), "--json", "--run-dir", str(run)]
        return json.loads(self.slurm.run("alice", *words))

    def time_of(self, kind: str, node: str) -> float:
        """Return the time of the last event of this kind with this node."""
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
    args = arguments("A node of a Slurm job loses its power.", "slurm")
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
                tell(turn, args.times, way, found[way])

    def theirs(way: str, row: str) -> Sequence[float]:
        return found["requeued"].get(row, []) if way != "requeued" else []

    show(f"{args.model} model, 4 ranks; SlurmdTimeout {SLURMD_TIMEOUT} s", "requeued / this", found, theirs, args)


if __name__ == "__main__":
    main()
