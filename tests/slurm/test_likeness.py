"""Real Slurm: a floating spare is like the nodes of its job, however that was asked for. What cannot be like them gets no rank."""

from __future__ import annotations

import re
import shutil
import sys
from typing import Any

import pytest

from tests.integration.processes import wait_until
from tests.integration.training import LONG, Outcome, survived
from tests.message_texts import has
from tests.slurm.cluster import Cluster, needs_slurm
from tests.slurm.submitted import OVER, Steady, Submitted
from tests.slurm.test_floating import spares
from understudy.messages import floating_spares
from understudy.messages import slurm as messages

pytestmark = [needs_slurm, pytest.mark.timeout(600)]


def given(slurm: Cluster, *fields: str, name: str = "understudy-spare") -> dict[str, str]:
    """Return Slurm's fields of the one job that runs under this name, and those of the last of its nodes."""
    (number,) = slurm.run("root", "squeue", "--noheader", f"--name={name}", "--states=RUNNING", "--format=%i").split()
    shown = slurm.run("root", "scontrol", "show", "job", "--details", "--oneliner", number)
    (*_, has) = re.findall(r" CPU_IDs=(\S+) Mem=(\S+) GRES=(\S*)", shown)
    words = dict(word.split("=", 1) for word in reversed(shown.split()) if "=" in word)
    return {**{field: words.get(field, "") for field in fields}, "CPUs": has[0], "memory": has[1], "gres": has[2]}


@pytest.mark.parametrize(
    "options",
    [
        "--gpus=8",
        "--gpus-per-node=2 --mem-per-gpu=300 --cpus-per-gpu=2",
        "--ntasks-per-node=2 --gpus-per-task=1 --mem-per-cpu=50",
        "--gpus-per-socket=3 --sockets-per-node=1",
        "--gres=gpu:1 --gpu-freq=low --gres-flags=enforce-binding --oversubscribe",
        "--gres=gpu:1 --mem=700 --exclusive=user",
        "--exclusive --mem=0",
        "--partition=brief --time=UNLIMITED",
        "--constraint=big&rack2",
    ],
)
def test_it_has_what_the_job_has_however_that_was_asked_for(options: str, slurm: Cluster) -> None:
    """Nothing trains: a claim like an orchestrator's is made for a job of two nodes that does nothing."""
    same = ["Partition", "QOS", "Account", "OverSubscribe", "Features", "TresFreq", "GresEnforceBind"]
    same += ["TimeLimit"] if "UNLIMITED" in options else []
    job = slurm.run("alice", "sbatch", "--parsable", "--job-name=job", "--nodes=2", *options.split(), "--wrap=sleep inf").strip()
    wait_until(lambda: running(slurm, "job"), "the job", LONG)
    slurm.run("alice", sys.executable, "-c", CLAIM, job, running(slurm, "job"))
    wait_until(lambda: running(slurm, "understudy-spare"), "the spare", LONG)
    assert given(slurm, *same) == given(slurm, *same, name="job")


@pytest.mark.parametrize("constraint", ["[rack1|rack2]", "[rack2*2]"])
def test_it_is_where_the_job_is_if_several_sets_of_nodes_would_have_done(constraint: str, slurm: Cluster) -> None:
    slurm.run("alice", "sbatch", "--job-name=job", "--nodes=2", "--exclude=n[1-2]", f"--constraint={constraint}", "--wrap=sleep inf")
    wait_until(lambda: running(slurm, "job") == "n[4-5]", "the job, in the second rack", LONG)
    job = slurm.run("root", "squeue", "--noheader", "--name=job", "--format=%i").strip()
    slurm.run("alice", sys.executable, "-c", CLAIM, job, "n[4-5]")
    wait_until(lambda: running(slurm, "understudy-spare") == "n6", "the spare, in the same rack", LONG)


def running(slurm: Cluster, name: str) -> str:
    """Nodes of the one job of this name, when it runs."""
    return slurm.run("root", "squeue", "--noheader", f"--name={name}", "--states=RUNNING", "--format=%N").strip()


CLAIM = """
import sys
from understudy.schedulers.base import Work
from understudy.schedulers.slurm import commands
from understudy.schedulers.slurm.claims import Claims
from understudy.schedulers.slurm.step import Step

job, nodes = sys.argv[1:]
claims = Claims(Step(job, "0", 0, nodes, 2, 0, 20000, ()), ())
claims.ask(0, Work("claim 0", ("sleep", "inf")), commands.expand(nodes), "n1", "for rank 0")
"""


def test_it_has_what_each_node_of_the_job_has_and_stays_where_and_as_long_as_the_job_may(slurm: Cluster) -> None:
    """The partition's default is 30 minutes, and the job's time has no limit. It must not be on n3, which is the first one free."""
    where = ("--partition=brief", "--time=UNLIMITED", "--exclude=n3", "--licenses=app:2", "--oversubscribe")
    much = ("--mem=1000", "--gpus-per-task=2", "--ntasks-per-node=1", "--cpus-per-task=2")
    job = Steady(slurm, "--floating-spares", "1", "--nproc-per-node", "2", nodes=2, spare_nodes=0, gpus=0, options=(*where, *much))
    job.trains()
    slurm.nodes["n2"].off()
    job.wait_until(lambda: {job.node_of(rank) for rank in (2, 3)} == {"n4"}, "both ranks on n4")
    assert given(slurm, "Partition", "TimeLimit", "Licenses", "ExcNodeList", "OverSubscribe") == {
        "Partition": "brief",
        "TimeLimit": "UNLIMITED",
        "Licenses": "app:1",
        "ExcNodeList": "n[1-3]",
        "OverSubscribe": "YES",
        "CPUs": "0-1",
        "memory": "1000",
        "gres": "gpu:2(IDX:0-1)",
    }
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert incident["cause"] == "node"
    job.nothing_is_left()


def test_gpus_of_the_whole_job_and_a_user_whose_environment_has_options_for_other_jobs(slurm: Cluster) -> None:
    """Eight GPUs on two nodes are four on each. Variables of sbatch would make an array of the spare, and one of squeue would hide it."""
    environment: dict[str, Any] = {"SBATCH_ARRAY_INX": "0-1", "SBATCH_TIMELIMIT": "1", "SQUEUE_PARTITION": "scavenge"}
    flags = ("--floating-spares", "1", "--nproc-per-node", "2")
    much = ("--gpus=8", "--mem-per-gpu=300", "--ntasks-per-node=1")
    job = Steady(slurm, *flags, nodes=2, spare_nodes=0, gpus=0, options=much, **environment)
    job.trains()
    slurm.nodes["n2"].off()
    job.wait_until(lambda: {job.node_of(rank) for rank in (2, 3)} == {"n3"}, "both ranks on n3")
    assert given(slurm) == {"CPUs": "0", "memory": "1200", "gres": "gpu:4(IDX:0-3)"}
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert incident["cause"] == "node"
    job.nothing_is_left()


@pytest.mark.parametrize(
    ("options", "has"),
    [
        ("--mem-per-gpu=100 --gpus=2 -c1", {"CPUs": "0", "memory": "200", "gres": "gpu:2(IDX:0-1)"}),
        ("--gres=gpu:1 --cpus-per-gpu=2", {"CPUs": "0-1", "memory": "400", "gres": "gpu:1(IDX:0)"}),
        ("--gres=none --mem-per-cpu 50", {"CPUs": "0-3", "memory": "200", "gres": ""}),
        ("--gpus-per-t=3", {"CPUs": "0-3", "memory": "400", "gres": "gpu:3(IDX:0-2)"}),
    ],
)
def test_what_the_users_options_set_is_theirs_and_all_else_is_as_the_job_has_it(options: str, has: dict[str, str], slurm: Cluster) -> None:
    """Slurm accepts each of these, some of which it would refuse in addition to the job's. The given node is found sufficient."""
    words = ("--nodes=2", "--ntasks-per-node=1", "--gres=gpu:4", "--cpus-per-task=4", "--mem=400", "--exclude=n1")
    job = slurm.run("alice", "sbatch", "--parsable", "--job-name=job", *words, "--wrap=sleep inf").strip()
    wait_until(lambda: running(slurm, "job"), "the job", LONG)
    compared = slurm.home("alice") / "compared"
    slurm.run("alice", sys.executable, "-c", CLAIM_COMPARED, job, running(slurm, "job"), str(compared), *options.split())
    wait_until(compared.exists, "that it has compared", LONG)
    assert compared.read_text() == "" and given(slurm) == has


CLAIM_COMPARED = """
import sys
from understudy.schedulers.base import Work
from understudy.schedulers.slurm import commands
from understudy.schedulers.slurm.claims import Claims
from understudy.schedulers.slurm.step import Step

job, nodes, file, *options = sys.argv[1:]
compares = '''
import os, sys, time
from understudy.common.names import NEED_VARIABLE
from understudy.schedulers.slurm.likeness import unlike
from understudy.schedulers.slurm.resources import Resources

found = unlike(Resources.of_json(os.environ[NEED_VARIABLE]))
with open(sys.argv[1] + ".new", "w") as file:
    file.write(found)
os.rename(file.name, sys.argv[1])
os.execlp("sleep", "sleep", "inf")
'''
claims = Claims(Step(job, "0", 0, nodes, 2, 0, 20000, ()), options)
claims.ask(0, Work("claim 0", (sys.executable, "-c", compares, file)), commands.expand(nodes), "n2", "for rank 0")
"""


def test_what_is_given_with_less_than_the_job_has_gets_no_rank(slurm: Cluster) -> None:
    """A program in the place of sbatch requests less, as a site's plugin might. Nothing of ours starts there, and the job reports what is
    missing.
    """
    sbatch = slurm.home("alice") / "bin" / "sbatch"
    slurm.run("alice", "mkdir", str(sbatch.parent))
    sbatch.write_text(f'#!/bin/sh\nexec {shutil.which("sbatch")} "$@" --gres=gpu:1 --mem=200\n')
    sbatch.chmod(0o755)
    before = f'export PATH="{sbatch.parent}:$PATH"'
    job = Steady(slurm, "--floating-spares", "1", nodes=4, spare_nodes=0, options=("--mem=400",), before=before)
    job.trains()
    slurm.nodes["n3"].off()
    job.wait_until(lambda: has(job.output, floating_spares.NOT_FULFILLED, claim=0), "that the claim is not fulfilled")
    assert has(job.output, messages.LESS_THAN_THE_JOB, missing="200 of 400 MiB of memory, 1 of 4 gpu"), job.output
    assert not list(job.folder.glob("understudy-runs/*claim*")), "an agent has started there"
    slurm.run("alice", "scancel", job.number)
    wait_until(lambda: job.state in OVER, "its end", LONG)
    wait_until(lambda: not spares(slurm), "no spare", LONG)
    job.nothing_is_left()


def test_a_task_of_an_array_is_not_taken_for_all_of_them(slurm: Cluster) -> None:
    """Slurm's number of the last task is that of the array. The report, and the process that ends with its batch script's node, are of
    this task only.
    """
    waits = '[ "$SLURM_ARRAY_TASK_ID" = 1 ] && exec sleep inf'
    job = Steady(slurm, "--nproc-per-node", "2", nodes=3, options=("--array=1-2", "--exclusive"), before=waits)
    job.wait_until(lambda: job.state == "RUNNING", "the second task")
    first = job.shown()["BatchHost"]
    others = [f"n{int(first[1:]) + number}" for number in (1, 2)]
    job.trains(others[0])
    slurm.nodes[first].off()
    job.wait_until(lambda: job.node_of(0, others[0]) == others[1], "rank 0 on the spare node")
    job.goes_on(others[0])

    def comment(task: int) -> str:
        return slurm.run("root", "squeue", "--noheader", f"--jobs={job.number}_{task}", "--format=%T %k").strip()

    job.wait_until(lambda: f"on {others[1]}" in comment(2), "its comment")
    assert comment(1) == "RUNNING (null)"
    job.ends_as_undisturbed(others[0], state="CANCELLED")
    assert comment(1) == "RUNNING (null)"
    slurm.run("alice", "scancel", job.number)
    job.nothing_is_left()


def test_a_job_of_several_components_trains(slurm: Cluster, undisturbed: Outcome) -> None:
    """On the nodes of all of them. That none of these is considered taken, a unit test shows: without a spare nothing follows here."""
    both = 'srun() { command srun --het-group=0,1 "$@"; }'
    job = Submitted(slurm, nodes=2, spare_nodes=0, options=("hetjob", "--nodes=2", "--gres=gpu:2"), before=both)
    survived(job.ends(), undisturbed, losses=0)
    job.nothing_is_left()


def test_a_job_of_several_components_has_no_floating_spares(slurm: Cluster) -> None:
    """Its nodes differ. That is reported at once, before anything begins."""
    output = slurm.home("alice") / "output.txt"
    run = "srun --het-group=0,1 understudy run --floating-spares 1 train.py"
    words = ("sbatch", "--parsable", f"--output={output}", "--nodes=1", "--gres=gpu:1", ":", "--nodes=1", "--gres=gpu:2", f"--wrap={run}")
    number = slurm.run("alice", *words).strip()
    wait_until(lambda: not slurm.run("alice", "squeue", "--noheader", f"--jobs={number}").strip(), "its end", LONG)
    assert has(output.read_text(), messages.CLAIMS_OF_PARTS, job=number, parts=2), output.read_text()
