"""The environment of a step, and the batch script that leads to one. Scripts on PATH replace Slurm's programs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.message_texts import refused
from tests.schedulers.slurm.programs import Programs

from understudy.messages import schedulers, slurm
from understudy.messages.base import Message
from understudy.schedulers.registry import allocation
from understudy.schedulers.slurm.allocation import SlurmAllocation
from understudy.schedulers.slurm.script import SRUN, Wish, script
from understudy.schedulers.slurm.step import FIRST_PORT, ORCHESTRATORS, Step, outside_of_a_step, step_of, topology

SRUN_SAYS = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-3]",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_NODEID": "1",
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path, monkeypatch)


def step(**more: str) -> Step:
    found = step_of({**SRUN_SAYS, **more})
    assert found is not None
    return found


def test_the_step_of_an_srun() -> None:
    found = step()
    assert (found.job, found.step, found.nodes, found.count, found.number) == ("7", "0", "n[1-3]", 3, 1)
    assert found.name == "slurm-7.0" and step(SLURM_RESTART_COUNT="2").name == "slurm-7.0-r2"


@pytest.mark.parametrize(
    "other",
    [
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "7; rm -rf /"},
        {"SLURM_STEP_ID": ""},
        {"SLURM_STEP_ID": "-1"},
        {"SLURM_STEP_ID": str(0xFFFFFFFB)},  # the batch script
        {"SLURM_STEP_ID": str(0xFFFFFFFA)},  # a shell
        {"SLURM_NODEID": ""},
        {"SLURM_NODEID": "one"},
    ],
)
def test_what_no_srun_has_started_is_in_no_step(other: dict[str, str]) -> None:
    assert step_of({**SRUN_SAYS, **other}) is None and step_of({}) is None


@pytest.mark.parametrize(("nodes", "tasks"), [("3", "6"), ("1", "8"), ("3", "1")])
def test_a_step_with_other_than_one_task_on_each_node_is_refused(nodes: str, tasks: str) -> None:
    with refused(ValueError, slurm.SEVERAL_TASKS, job=7, tasks=tasks, nodes=nodes):
        step(SLURM_STEP_NUM_NODES=nodes, SLURM_STEP_NUM_TASKS=tasks)


@pytest.mark.parametrize("number", ["", "x", "-3", "٣"])
def test_a_number_that_is_none_counts_as_not_given(number: str) -> None:
    found = step(SLURM_STEP_NUM_NODES=number, SLURM_STEP_NUM_TASKS="", SLURM_RESTART_COUNT=number)
    assert (found.count, found.restarts) == (1, 0)


@pytest.mark.parametrize(
    ("variables", "address", "parts"),
    [
        ({}, "7", 1),
        ({"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}, "7_3", 1),
        ({"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3"}, "7", 1),  # one of the others, or what a job has left from which it came
        ({"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "x"}, "7", 1),
        ({"SLURM_HET_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_0": "7"}, "7", 2),
        ({"SLURM_HET_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_0": "5"}, "7", 1),
    ],
)
def test_jobs_that_share_their_number_with_others(variables: dict[str, str], address: str, parts: int) -> None:
    found = step(**variables)
    assert (found.address, found.parts) == (address, parts)


def test_a_step_that_no_other_node_can_be_like_has_no_floating_spares() -> None:
    step().check_claims(())
    with refused(ValueError, slurm.CLAIMS_OF_PARTS, job="7", parts=3):
        step(SLURM_HET_SIZE="3", SLURM_JOB_ID_HET_GROUP_0="7").check_claims(())
    inside = step(SLURM_CONTAINER="/oci/torch")
    with refused(ValueError, slurm.CLAIMS_IN_CONTAINER, container="/oci/torch"):
        inside.check_claims(("--qos=urgent", "--containers=x"))
    inside.check_claims(("--container=/oci/torch",))


@pytest.mark.parametrize(
    ("name", "was"),
    [
        ("slurm-7.0", True),
        ("slurm-7.0-r1", True),
        ("slurm-7.0-r2", False),
        ("slurm-7.1-r1", False),
        ("slurm-70.0", False),
        ("slurm-7", False),
        ("", False),
    ],
)
def test_an_earlier_run_of_the_same_step_is_known_by_its_name(name: str, was: bool) -> None:
    assert step(SLURM_RESTART_COUNT="2").was(name) is was


@pytest.mark.parametrize(
    ("reserved", "port"), [("12000-12002", 12000), ("12000-12009", 12000), ("12000-12001", 0), ("12000", 0), ("12002-12000", 0), ("a-b", 0)]
)
def test_ports_that_slurm_has_reserved_are_taken_if_they_suffice(reserved: str, port: int) -> None:
    assert step(SLURM_STEP_RESV_PORTS=reserved).port == (port or FIRST_PORT + 7 * (ORCHESTRATORS + 1))


def test_steps_and_jobs_that_run_at_one_time_have_ports_of_their_own_below_those_that_systems_give_out() -> None:
    found = [step(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(number)).port for job in range(5, 105) for number in range(2)]
    assert len({port + more for port in found for more in range(ORCHESTRATORS)}) == len(found) * ORCHESTRATORS
    assert step(SLURM_JOB_ID=str(2**32 - 1), SLURM_STEP_ID=str(2**31)).port + ORCHESTRATORS <= 32768
    assert all(FIRST_PORT <= port < 32768 - ORCHESTRATORS for port in found)


def test_its_place(programs: Programs) -> None:
    """Names are Slurm's; addresses are those that it knows, and the name where it knows none."""
    programs.answer("scontrol show hostnames n[1-4]", "n1\nn2\nn3\nn4\n")
    programs.answer("sinfo", "n2|127.0.1.2|allocated|Unknown|Unknown|none\nn1||allocated|Unknown|Unknown|none\n")
    place = step(SLURM_STEP_NODELIST="n[1-4]", SLURM_STEP_NUM_NODES="4", SLURM_STEP_NUM_TASKS="4").place()
    assert (place.scheduler, place.job, place.nodes, place.number) == ("slurm", "slurm-7.0", ("n1", "n2", "n3", "n4"), 1)
    assert place.addresses == ("n1", "127.0.1.2", "n3")
    assert place.ports == (FIRST_PORT + 28, FIRST_PORT + 29, FIRST_PORT + 30)
    assert programs.calls("sinfo")[-1][-1] == "--nodes=n1,n2,n3"


def test_of_one_node_others_may_need_the_address(programs: Programs) -> None:
    """Those that are claimed later."""
    programs.answer("scontrol show hostnames", "n1\n")
    programs.answer("sinfo", "n1|10.0.0.7|mixed|Unknown|Unknown|none\n")
    assert step(SLURM_STEP_NODELIST="n1", SLURM_STEP_NUM_NODES="1", SLURM_STEP_NUM_TASKS="1").place().addresses == ("10.0.0.7",)


@pytest.mark.parametrize(
    ("names", "kinds", "labels"),
    [
        ("spine.leaf3.n7", "switch.switch.node", (("switch", "leaf3"),)),
        ("b1.s2.n7", "block.switch.node", (("nvlink-domain", "b1"), ("switch", "s2"))),
        ("n7", "node", ()),
        ("a.b", "switch", ()),
        (".n7", "switch.node", ()),
        ("", "", ()),
        ("le\x1b[31maf.n7", "switch.node", (("switch", "le\\x1b[31maf"),)),
    ],
)
def test_its_place_in_the_network(names: str, kinds: str, labels: tuple[tuple[str, str], ...]) -> None:
    assert topology({"SLURM_TOPOLOGY_ADDR": names, "SLURM_TOPOLOGY_ADDR_PATTERN": kinds}) == labels


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3"}, slurm.WITHOUT_SRUN(job=7, nodes=3)),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}, ""),
        ({"SLURM_JOB_NUM_NODES": "3"}, ""),
        ({**SRUN_SAYS, "SLURM_JOB_NUM_NODES": "3"}, ""),
        ({}, ""),
    ],
)
def test_a_user_of_one_of_several_nodes_is_informed(environment: dict[str, str], expected: str) -> None:
    assert outside_of_a_step(environment) == expected


# -- whose allocation ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["auto", "slurm"])
def test_the_allocation_is_found_by_its_environment(name: str, programs: Programs) -> None:
    programs.answer("scontrol show hostnames", "n1\nn2\nn3\n")
    found = allocation(name, SRUN_SAYS)
    assert isinstance(found, SlurmAllocation) and found.place.job == "slurm-7.0"


@pytest.mark.parametrize("name", ["auto", "slurm", "local"])
def test_without_one_there_is_none(name: str) -> None:
    assert allocation(name, {}) is None


def test_an_impossible_start_is_reported() -> None:
    assert allocation("local", SRUN_SAYS) is None
    with refused(ValueError, schedulers.NO_SUCH_SCHEDULER, scheduler="pbs"):
        allocation("pbs", {})
    with refused(ValueError, slurm.SEVERAL_TASKS, tasks=6, nodes=3):
        allocation("auto", {**SRUN_SAYS, "SLURM_STEP_NUM_TASKS": "6"})


# -- the batch script ------------------------------------------------------------------------------------------------------------


def directives(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ").partition("  # ")[0] for line in text.splitlines() if line.startswith("#SBATCH ")]


def test_a_script_asks_for_the_nodes_of_spares_too() -> None:
    text = script(Wish(["train.py", "--lr", "0.1"], nodes=2, spare_nodes=1, ranks=4, gpus=4, cpus=8, requeue=True, notice=60))
    asked = directives(text)
    assert {"--nodes=3", "--ntasks-per-node=1", "--gpus-per-node=4", "--cpus-per-task=8", "--no-kill"} <= {*asked}
    assert {"--requeue", "--open-mode=append", "--signal=USR1@60"} <= {*asked} and "--exclusive" not in asked
    assert text.startswith("#!/bin/bash\n#SBATCH ")
    assert text.splitlines()[-1] == f"{SRUN} --cpus-per-task=8 understudy run --spare-nodes 1 --nproc-per-node 4 train.py --lr 0.1"


def test_a_small_script_asks_for_nothing_that_was_not_wished() -> None:
    text = script(Wish(["train.py"], spare_nodes=0))
    assert {"--nodes=1", "--exclusive", "--no-requeue"} <= {*directives(text)}
    assert not [word for word in ("--requeue", "--gpus", "--signal", "--time", "--spare-nodes ") if f" {word}" in text.partition("srun")[0]]
    assert text.splitlines()[-1] == f"{SRUN} understudy run --nproc-per-node 1 train.py"


def test_words_stay_whole_and_run_nothing() -> None:
    words = ["my train.py", "--text", "$(rm -rf ~); `x` 'y' \"z\" #"]
    text = script(Wish(words, name="a b # $(c)", options=["--label", "rack=1 2"], setup=["module load cuda"]))
    assert f"--job-name={shlex.quote('a b # $(c)')}" in text and "\nmodule load cuda\n" in text
    assert shlex.split(text.splitlines()[-1])[-5:] == ["--label", "rack=1 2", *words][-5:]


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (Wish([]), slurm.NO_PROGRAM),
        (Wish(["a.py"], nodes=0), slurm.TOO_FEW),
        (Wish(["a.py"], spare_nodes=-1), slurm.TOO_FEW),
        (Wish(["a.py"], ranks=0), slurm.TOO_FEW),
        (Wish(["a.py\nrm -rf ~"]), slurm.NOT_IN_A_SCRIPT),
        (Wish(["a.py"], name="x\n#SBATCH --uid=0"), slurm.NOT_IN_A_SCRIPT),
        (Wish(["a.py"], partition="x\ry"), slurm.NOT_IN_A_SCRIPT),
        (Wish(["a.py"], options=["\0"]), slurm.NOT_IN_A_SCRIPT),
    ],
)
def test_what_cannot_be_written_into_one_is_refused(wish: Wish, message: Message) -> None:
    with refused(ValueError, message):
        script(wish)
