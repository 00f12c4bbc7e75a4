"""Floating spares on Slurm: what is asked for, and how it is found again. Small scripts on PATH stand in for Slurm's programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.message_texts import refused
from tests.schedulers.slurm.programs import Programs

from understudy.common.names import NEED_VARIABLE, OWNER_VARIABLE
from understudy.messages import slurm
from understudy.schedulers.base import ClaimedNode, SchedulerAway, SchedulerFailed, Work
from understudy.schedulers.slurm.claims import Claims, owner_is_over, refuse
from understudy.schedulers.slurm.resources import Resources
from understudy.schedulers.slurm.step import Step

WORK = Work("claim 4", ("python", "-m", "mine", "a b; $(c)"), {"SECRET": "s"})
HAS = "JobId=7 JobName=x UserId=a(1) ExcNodeList={without} NodeList=n[1-3] Nodes=n[1-3] CPU_IDs=0-7 Mem=4000 GRES=gpu:4(IDX:0-3) \n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs(tmp_path, monkeypatch)
    found.answer("sbatch", "12\n")
    found.answer("scontrol show job --details --oneliner 7", HAS.format(without="(null)"))
    return found


def claims(restarts: int = 1, *options: str) -> Claims:
    return Claims(Step("7", "0", restarts, "n[1-3]", 3, 0, 20000, ()), options)


def mark(number: int | str = 4, job: str = "slurm-7.0-r1") -> str:
    return f"understudy: spare of {job}, claim {number}; for rank 2"


def test_what_is_asked_for(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that are options for a user's own jobs do not count."""
    for name in ("HOME", "SBATCH_ARRAY_INX", "SBATCH_TIMELIMIT", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "1")
    claims(1, "--qos=urgent").ask(4, WORK, {"n2", "n1"}, "n2", 'for "rank" 2')
    (call,) = programs.calls("sbatch")
    assert "--comment=understudy: spare of slurm-7.0-r1, claim 4; for 'rank' 2" in call
    assert {"--job-name=understudy-spare", "--no-requeue", "--exclude=n1,n2", "--nodes=1", "--qos=urgent"} <= {*call}
    assert {"--cpus-per-task=8", "--mem=4000M", "--gres=gpu:4"} <= {*call}
    given, around = programs.last()
    assert given == "#!/bin/sh\nexec python -m mine 'a b; $(c)'\n", "the secret is not in it"
    assert (around["SECRET"], around[OWNER_VARIABLE]) == ("s", "7")
    assert Resources.of_json(around[NEED_VARIABLE]) == Resources(8, 4000, {"gpu": 4})
    assert "HOME" in around and not [name for name in around if name.startswith(("SBATCH_", "SLURM_"))]


@pytest.mark.parametrize(
    ("options", "ours", "last", "need"),
    [
        (["--mem=100G"], ["--cpus-per-task=8", "--gres=gpu:4,nic:2"], [], Resources(8, 0, {"gpu": 4, "nic": 2})),
        (["--mem-per-cpu", "1G", "-c2"], ["--gres=gpu:4,nic:2"], [], Resources(0, 0, {"gpu": 4, "nic": 2})),
        (
            ["--gres=gpu:h100:8"],
            ["--cpus-per-task=8", "--mem=4000M", "--gres=nic:2"],
            ["--gres=gpu:h100:8,nic:2"],
            Resources(8, 4000, {"nic": 2}),
        ),
        (["--gpus-per-node=1"], ["--cpus-per-task=8", "--mem=4000M", "--gres=nic:2"], [], Resources(8, 4000, {"nic": 2})),
        (["--gres=none"], ["--cpus-per-task=8", "--mem=4000M"], [], Resources(8, 4000, {})),
    ],
)
def test_what_options_of_the_users_set_is_theirs(
    options: list[str], ours: list[str], last: list[str], need: Resources, programs: Programs
) -> None:
    """It is not asked for as the job has it, which Slurm refuses next to some of these, and not compared. All else is."""
    programs.answer("scontrol show job", HAS.format(without="(null)").replace("gpu:4(IDX:0-3)", "gpu:4(IDX:0-3),nic:2(IDX:0-1)"))
    claims(1, *options).ask(4, WORK, {"n1"}, "n2", "x")
    call = programs.calls("sbatch")[0]
    assert call[call.index("--output=/dev/null") + 1 : call.index("--job-name=understudy-spare")] == [*ours, *options, *last]
    assert Resources.of_json(programs.last()[1][NEED_VARIABLE]) == need


def test_where_the_job_itself_must_not_be_no_spare_is_either(programs: Programs) -> None:
    programs.answer("scontrol show job", HAS.format(without="m[1-9]"))
    claims().ask(4, WORK, {"n2", "n1"}, "n2", "x")
    assert "--exclude=n1,n2,m[1-9]" in programs.calls("sbatch")[0]


def test_no_option_of_the_users_hides_a_claim_or_gives_it_a_node_of_the_job(programs: Programs) -> None:
    """The last of an option counts. A claim with another name or comment would not be found, and be asked for again and again."""
    claims(1, "--comment=project", "-J", "x", "--requeue", "-xm1").ask(4, WORK, {"n1"}, "n2", "for rank 2")
    assert programs.calls("sbatch")[0][-4:] == ["--job-name=understudy-spare", f"--comment={mark()}", "--no-requeue", "--exclude=n1,m1"]


def test_excluded_nodes_may_be_in_a_file(programs: Programs) -> None:
    programs.answer("scontrol show hostlist /home/a/hosts", "m[1-3]\n")
    claims(1, "--exclude=/home/a/hosts").ask(4, WORK, {"n1"}, "n2", "x")
    assert "--exclude=n1,m[1-3]" in programs.calls("sbatch")[0]


def test_nothing_is_asked_for_if_what_the_job_has_is_not_known(programs: Programs) -> None:
    programs.answer("scontrol show job", "JobId=7 JobName=x UserId=a(1) NodeList=n1 \n")
    with refused(SchedulerFailed, slurm.NOTHING_LISTED, job="7"):
        claims().ask(4, WORK, (), "n2", "x")
    assert not programs.calls("sbatch")


def test_the_same_number_twice_gives_one_node_also_of_an_orchestrator_before_this_one(programs: Programs) -> None:
    programs.answer("squeue", f"12|PENDING||Priority|{mark()}\n")
    claims().ask(4, WORK, (), "n2", "x")
    assert not programs.calls("sbatch")
    claims().ask(5, WORK, (), "n2", "x")
    assert len(programs.calls("sbatch")) == 1


@pytest.mark.parametrize(
    ("said", "kind"), [("Unable to contact slurm controller", SchedulerAway), ("QOSMaxSubmitJobPerUserLimit", SchedulerFailed)]
)
def test_a_node_that_is_refused(said: str, kind: type[Exception], programs: Programs) -> None:
    programs.answer("sbatch", error=f"sbatch: error: {said}\n", code=1)
    with pytest.raises(kind, match=said) as caught:
        claims().ask(4, WORK, (), "n2", "x")
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("12|PENDING||Priority|", ClaimedNode(False, "", "Slurm job 12 pending (Priority)")),
        ("12|CONFIGURING|n5|None|", ClaimedNode(False, "n5", "Slurm job 12 configuring")),
        ("12|RUNNING|n5|None|", ClaimedNode(False, "n5", "Slurm job 12 running")),
        ("12|COMPLETING|n5|None|", ClaimedNode(False, "n5", "Slurm job 12 completing")),
        ("12|NODE_FAIL|n5|None|", ClaimedNode(True, "n5", "Slurm job 12 node fail")),
        ("12|PREEMPTED||None|", ClaimedNode(True, "", "Slurm job 12 preempted")),
        ("12|CANCELLED||None|", ClaimedNode(True, "", "Slurm job 12 cancelled")),
    ],
)
def test_the_state_of_a_claim(line: str, held: ClaimedNode, programs: Programs) -> None:
    programs.answer("squeue", line + mark() + "\n")
    assert claims().claimed() == {4: held}
    (call,) = programs.calls("squeue")
    assert "--name=understudy-spare" in call and any(word.startswith("--user=") for word in call)


def test_one_that_has_ended_does_not_hide_one_that_has_not(programs: Programs) -> None:
    lines = [f"{number}|{state}|n5|None|{mark()}\n" for number, state in ((11, "FAILED"), (12, "RUNNING"), (13, "CANCELLED"))]
    programs.answer("squeue", "".join(lines))
    found = claims()
    assert found.claimed() == {4: ClaimedNode(False, "n5", "Slurm job 12 running")}
    found.give_back(4)
    assert programs.calls("scancel") == [["scancel", "12"]]


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "(null)",
        "my own",
        f"see {mark()}",
        mark(job="slurm-8.0"),
        mark(job="slurm-7.1-r1"),
        mark("4x"),
        mark("-4"),
        mark("٣"),
        mark("9" * 5000),
        mark().replace(";", ""),
        mark().upper(),
        "understudy: spare of , claim 4; x",
    ],
)
def test_what_only_looks_like_a_claim_is_left_alone(comment: str, programs: Programs) -> None:
    programs.answer("squeue", f"12|RUNNING|n5|None|{comment}\n")
    found = claims()
    assert found.claimed() == {}
    found.give_back(4)
    found.record(4, "x")
    assert len(programs.calls()) == 1


@pytest.mark.parametrize("answer", ["", "\n", "12|RUNNING\n", "||||\n", "\0\x1b[2J\n", "x" * 5_000_000])
def test_an_answer_that_is_none_holds_nothing(answer: str, programs: Programs) -> None:
    programs.answer("squeue", answer)
    assert claims().claimed() == {}


@pytest.mark.parametrize(("state", "ended"), [("RUNNING", True), ("PENDING", True), ("COMPLETED", False)])
def test_what_was_claimed_before_the_job_was_requeued_is_ended(state: str, ended: bool, programs: Programs) -> None:
    programs.answer("squeue", f"12|{state}|n5|None|{mark(job='slurm-7.0')}\n13|{state}|n6|None|{mark(job='slurm-8.0')}\n")
    assert claims().claimed() == {} and programs.calls("scancel") == ([["scancel", "12"]] if ended else [])


TOPOLOGY = """SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-3]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[4-6],m1
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-6],m1 Switches=s[1-2]
"""
BLOCKS = "BlockName=b1 BlockIndex=0 Nodes=n[1-3] BlockSize=3\nBlockName=b2 BlockIndex=1 Nodes=n[4-6],m1 BlockSize=3\n"


@pytest.mark.parametrize("topology", [TOPOLOGY, BLOCKS])
def test_near_its_peers_if_that_is_free_and_else_from_anywhere(topology: str, programs: Programs) -> None:
    programs.answer("scontrol show topology", topology)
    programs.answer("scontrol show topology n2", "".join(line for line in topology.splitlines(keepends=True) if "=n[1-" in line))
    found = claims()
    found.ask(4, WORK, {"n2", "n1"}, "n2", "for rank 2")
    (call,) = programs.calls("sbatch")
    comment = f"{mark()} (near its peers, if that is free)"
    assert {"--exclude=n1,n2,n[4-6],m1", f"--comment={comment}"} <= {*call}
    programs.answer("squeue", f"12|RUNNING|n3|None|{comment}\n")
    assert found.claimed()[4].node == "n3" and not programs.calls("scontrol update")
    programs.answer("squeue", f"12|PENDING||Resources|{comment}\n")
    assert found.claimed() == {4: ClaimedNode(False, "", "Slurm job 12 pending (Resources)")}
    assert programs.calls("scontrol")[-1] == ["scontrol", "update", "JobId=12", "ExcNodeList=n1,n2", f"Comment={mark()}"]


def test_who_takes_over_lets_it_go_elsewhere_than_to_the_jobs_own_nodes(programs: Programs) -> None:
    programs.answer("squeue", f"12|PENDING||Resources|{mark()} (near its peers, if that is free)\n")
    programs.answer("scontrol show hostnames", "n1\nn2\nn3\n")
    programs.answer("scontrol show job", HAS.format(without="m[1-9]"))
    programs.answer("scontrol update", error="Job is no longer pending execution\n", code=1)
    assert claims().claimed() == {4: ClaimedNode(False, "", "Slurm job 12 pending (Resources)")}
    assert programs.calls("scontrol")[-1][3] == "ExcNodeList=n1,n2,n3,m[1-9]"


def test_from_anywhere_also_if_no_other_node_can_ever_be_near(programs: Programs) -> None:
    """Slurm refuses that at once."""
    programs.answer("scontrol show topology", TOPOLOGY)
    programs.answer("scontrol show topology n2", TOPOLOGY.splitlines(keepends=True)[0])
    near = "sbatch --parsable --export=ALL --nodes=1 --ntasks=1 --output=/dev/null --cpus-per-task=8 --mem=4000M --gres=gpu:4 "
    near += "--job-name=understudy-spare --comment="
    near += f"{mark()} (near its peers, if that is free) --no-requeue"
    programs.answer(near, error="sbatch: error: Requested node configuration is not available\n", code=1)
    claims().ask(4, WORK, {"n2"}, "n2", "for rank 2")
    call = programs.calls("sbatch")[-1]
    assert {"--exclude=n2", f"--comment={mark()}"} <= {*call}


@pytest.mark.parametrize(("said", "code"), [("", 0), ("No topology information available\n", 0), ("x", 1), (TOPOLOGY[:40], 0)])
def test_where_nothing_is_known_of_a_network_it_comes_from_anywhere(said: str, code: int, programs: Programs) -> None:
    programs.answer("scontrol show topology", said, code=code)
    claims().ask(4, WORK, {"n2"}, "n2", "for rank 2")
    (call,) = programs.calls("sbatch")
    assert {"--exclude=n2", f"--comment={mark()}"} <= {*call}


def test_one_that_refuses_itself_leaves_the_reason_in_its_comment(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    programs.answer("squeue", f"11|RUNNING|n4|None|{mark(3)}\n12|RUNNING|n5|None|{mark()}\n")
    why = slurm.LESS_THAN_THE_JOB(node="n5", missing="1 of 4 gpu")
    refuse(why)
    said = f"understudy: spare of slurm-7.0-r1, claim 4; {why}"
    assert programs.calls("scontrol") == [["scontrol", "update", "JobId=12", f"Comment={said}"]]
    programs.answer("squeue", f"12|FAILED|n5|NonZeroExitCode|{said}\n")
    assert claims().claimed() == {4: ClaimedNode(True, "n5", f"Slurm job 12 failed: {why}")}
    programs.answer("scontrol update", error="no\n", code=1)
    refuse(why)


def test_after_ones_that_have_refused_themselves_the_next_begins_later(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long again as that has gone on: it would most likely be refused, too. If an agent has started on one, that is over."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    found = claims()
    found.ask(0, WORK, (), "n2", "x")
    lines = ""
    for number, (seconds, begins) in enumerate([(10, 10), (25, 35), (90, 125), (1000, 300)], 1):
        lines += f"{20 + number}|FAILED|n5|NonZeroExitCode|{mark(number - 1)} {slurm.LESS_THAN_THE_JOB(node='n5', missing='x')}\n"
        programs.answer("squeue", lines.replace("; for rank 2", ";"))
        assert found.claimed()[number - 1].over
        now += seconds
        found.ask(number, WORK, (), "n2", "x")
        assert f"--begin=now+{begins}" in programs.calls("sbatch")[-1]
    found.record(4, "rank 2 on n5")
    found.ask(5, WORK, (), "n2", "x")
    assert not any(word.startswith("--begin") for call in (programs.calls("sbatch")[0], programs.calls("sbatch")[-1]) for word in call)


def test_one_that_begins_later_may_be_near_its_peers_then(programs: Programs) -> None:
    programs.answer("squeue", f"12|PENDING||BeginTime|{mark()} (near its peers, if that is free)\n")
    assert claims().claimed() == {4: ClaimedNode(False, "", "Slurm job 12 pending (BeginTime)")} and not programs.calls("scontrol")


def test_its_state_is_in_the_comment_after_its_mark(programs: Programs) -> None:
    found = claims()
    found.ask(4, WORK, (), "n2", "for rank 2")
    found.record(4, "rank 2 on n5\x1b[2J" + "x" * 5000)
    (*words, comment) = programs.calls("scontrol")[-1]
    assert words == ["scontrol", "update", "JobId=12"] and len(comment) <= 1010
    assert comment.startswith("Comment=understudy: spare of slurm-7.0-r1, claim 4; rank 2 on n5\\x1b[2J")


@pytest.mark.parametrize(
    ("output", "error", "over"),
    [
        ("7|RUNNING\n", "", False),
        ("7|PENDING\n", "", False),
        ("7|COMPLETING\n", "", False),
        ("7|COMPLETED\n", "", True),
        ("7|TIMEOUT\n", "", True),
        ("8|RUNNING\n7|FAILED\n", "", True),
        ("8|RUNNING\n", "", True),
        ("", "", True),
        ("", "slurm_load_jobs error: Invalid job id specified", True),
        ("", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", False),
        ("", "slurm_load_jobs error: Access denied", False),
    ],
)
def test_a_spare_ends_when_the_job_that_it_is_for_is_known_to_be_over(output: str, error: str, over: bool, programs: Programs) -> None:
    programs.answer("squeue", output, error, int(bool(error)))
    assert owner_is_over("7") is over
