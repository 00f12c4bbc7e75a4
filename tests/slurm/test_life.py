"""Real Slurm: the start and the end of a job. Signals, cancelling, restarting, several jobs of several people; no process is left
running.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from tests.integration.processes import wait_until
from tests.integration.training import LONG, Outcome, survived
from tests.message_texts import has
from tests.slurm.cluster import Cluster, needs_slurm
from tests.slurm.submitted import OVER, Submitted
from understudy.messages import coverage, quorums, starting

pytestmark = [needs_slurm, pytest.mark.timeout(600)]
HELD = 6


def test_the_script_fails(slurm: Cluster) -> None:
    """Its exit code is the job's, and Slurm's."""
    file = slurm.home("alice") / "fails.py"
    file.write_text("import sys, understudy\njob = understudy.join()\nsys.exit(7)\n")
    job = Submitted(slurm, script=str(file))
    outcome = job.ends(state="FAILED")
    assert outcome.code == 7, outcome.output
    job.nothing_is_left()


@pytest.mark.parametrize("phase", ["before the first step", "in plain training", "during a recovery", "while a node is claimed"])
def test_cancelled(slurm: Cluster, phase: str) -> None:
    """At any moment: everything ends, on all nodes."""
    flags = ["--floating-spares", "1"] if phase == "while a node is claimed" else []
    size = {"nodes": 4, "spare_nodes": 0} if flags else {"nodes": 5, "spare_nodes": 1}
    if phase == "while a node is claimed":  # it cannot be given: the others are in use
        slurm.run("bob", "sbatch", "--nodes=2", "--nodelist=n[5-6]", "--exclusive", "--wrap=sleep inf")
    job = Submitted(slurm, *flags, nodes=size["nodes"], spare_nodes=size["spare_nodes"], HELD=f"2:{HELD}", PHASES=f"setup:{HELD}")
    if phase == "before the first step":
        job.wait_for_words(quorums.LEADS.code)
    else:
        job.wait_for(f"held {HELD}")
    if phase in ("during a recovery", "while a node is claimed"):
        slurm.nodes["n3"].off()
    if phase == "during a recovery":
        job.wait_for("setup")
    if phase == "while a node is claimed":
        job.wait_until(lambda: "PENDING" in slurm.run("root", "squeue", "--noheader", "--name=understudy-spare", "--format=%T"), "a claim")
    slurm.run("alice", "scancel", job.number)
    wait_until(lambda: job.state in OVER, "its end", LONG)
    assert job.state == "CANCELLED"
    job.nothing_is_left()


def test_notice(slurm: Cluster) -> None:
    """A signal of Slurm's, as it sends it before the time limit, goes on to the script, in every rank and in no spare. The job goes on, and
    ends by itself.
    """
    file = slurm.home("alice") / "noticed.py"
    file.write_text(NOTICED)
    job = Submitted(slurm, script=f"{file} {slurm.home('alice')}")
    job.wait_for_words(coverage.COVERED.code)
    slurm.run("alice", "scancel", "--signal=USR1", job.number)
    outcome = job.ends()
    assert outcome.code == 0, outcome.output
    assert sorted(path.name for path in slurm.home("alice").glob("noticed-*")) == [f"noticed-{rank}" for rank in range(4)]
    assert has(outcome.output, starting.SIGNAL_FORWARDED, signal="SIGUSR1")
    job.nothing_is_left()


NOTICED = """
import signal, sys
import torch, torch.distributed as dist
import understudy

job = understudy.join()
noticed = False

def notice(number, frame):
    global noticed
    noticed = True

signal.signal(signal.SIGUSR1, notice)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer)

@job.step
def train():
    optimizer.zero_grad()
    every = torch.tensor(int(noticed))
    dist.all_reduce(every, dist.ReduceOp.MIN)
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    return bool(every)

for _ in job.steps(1 << 40):
    if train():
        break
    signal.sigtimedwait([], 0.05)
open(f"{sys.argv[1]}/noticed-{job.rank}", "w").close()
"""


def test_requeued(slurm: Cluster, undisturbed: Outcome) -> None:
    """It restarts from its beginning, as users of Slurm expect, in a new folder."""
    job = Submitted(slurm, options=("--requeue", "--open-mode=append"), HELD=f"2:{HELD}")
    job.wait_for(f"held {HELD}")
    slurm.run("alice", "scontrol", "requeue", job.number)
    wait_until(lambda: job.shown()["Restarts"] == "1" and job.state == "RUNNING", "the second run", LONG)
    for log in (job.folder / "out").glob("log-*"):  # of the first run
        log.unlink()
    wait_until(lambda: job.run_directory("n1", 1).exists(), "its folder", LONG)
    (job.folder / "out" / "run").symlink_to(job.run_directory("n1", 1))
    survived(job.ends(), undisturbed, losses=0)
    job.nothing_is_left()


def test_several_jobs_of_several_people(slurm: Cluster, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """On the same nodes, at the same time. A node dies, and each of them loses a rank."""
    jobs = [
        Submitted(slurm, nodes=3, user=user, name=name, options=("--oversubscribe", "--nodelist=n[1-3]"), gpus=1, HELD=f"1:{HELD}")
        for user, name in (("alice", "one"), ("alice", "two"), ("bob", "one"))
    ]
    for job in jobs:
        job.wait_for(f"held {HELD}")
    slurm.nodes["n2"].off()
    for job in jobs:
        (incident,) = survived(job.ends(), undisturbed_spread(2))
        assert (incident["cause"], incident["rank"]) == ("node", 1)
        job.nothing_is_left()


def test_a_job_that_ends_slowly_is_not_cancelled(slurm: Cluster) -> None:
    """Longer than workers get to end after a request: an upload in an exit handler, on the node of the batch script, too."""
    file = slurm.home("alice") / "uploads.py"
    file.write_text(UPLOADS)
    job = Submitted(slurm, "--shutdown-timeout", "1", script=f"{file} {slurm.home('alice')}")
    outcome = job.ends()
    assert outcome.code == 0, outcome.output
    assert len(list(slurm.home("alice").glob("uploaded-*"))) == 4
    job.nothing_is_left()


UPLOADS = """
import atexit, signal, sys
import torch
import understudy

job = understudy.join()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer)

def upload():
    signal.sigtimedwait([], 8.0)
    open(f"{sys.argv[1]}/uploaded-{job.rank}", "w").close()

atexit.register(upload)

@job.step
def train():
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()

for _ in job.steps(3):
    train()
"""


def test_the_port_to_slurm_as_a_scheduler(slurm: Cluster) -> None:
    """Its process runs on a node of the cluster, is asked to end, and its end is reported."""
    shown = slurm.run("alice", sys.executable, "-c", PORT)
    assert json.loads(shown) == [True, "running", True, "Slurm job FIRST completed", True, True]


PORT = """
import json, os, select, signal, sys
from pathlib import Path
from understudy.schedulers.base import Work
from understudy.schedulers.registry import find

scheduler = find("slurm")
here = Path.cwd()
job = scheduler.submit(Work("first", (sys.executable, "-c", f"import os; open('{here}/ran', 'w').write(os.environ['WHO'])"), {"WHO": "us"}))
node = scheduler.add_node(Work("second", (sys.executable, "-c", "import signal; signal.pause()")))
ended = job.wait(60)
found = scheduler.status()
while os.popen(f"squeue --noheader --jobs={node.number} --format=%T").read().strip() != "RUNNING":
    pass
scheduler.drain_node("second")
over = node.wait(60)
readable = select.select([node], [], [], 10)[0] == [node]
print(json.dumps([
    ended, found["second"], (here / "ran").read_text() == "us", found["first"].replace(job.number, "FIRST"), over,
    readable and scheduler.status()["second"] != "running",
]))
"""
