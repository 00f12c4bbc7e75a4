"""What Slurm's programs print, as 22.05 does, and their arguments. Small scripts on PATH stand in for them."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.message_texts import refused
from tests.schedulers.slurm.programs import Programs

from understudy.messages import slurm
from understudy.schedulers.base import TAKEN, NodeSeen, SchedulerAway, SchedulerFailed
from understudy.schedulers.slurm import commands
from understudy.schedulers.slurm.allocation import SILENT, SlurmAllocation
from understudy.schedulers.slurm.step import Step

STEP = Step("7", "0", 0, "n[1-3]", 3, 0, 20000, ())
JOB = (
    "JobId=7 JobName={name} UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A Priority=4294901757 Nice=0 Account=physics QOS=normal "
    "JobState=RUNNING Reason=None Dependency=(null) Requeue=0 Restarts=0 BatchFlag={batch} Reboot=0 ExitCode=0:0 RunTime=00:01:00 "
    "TimeLimit=01:00:00 TimeMin=N/A StartTime=2026-11-26T04:00:00 EndTime=2026-11-26T05:00:00 Partition=gpu AllocNode:Sid=login:1 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList={nodes} BatchHost=n1 NumNodes=3 NumCPUs=12 NumTasks=3 CPUs/Task=1 MinMemoryNode=0 "
    "Features=(null) OverSubscribe=NO Command=/home/ann/job.sh WorkDir=/home/ann Comment={comment} StdErr=/dev/null Power= "
    "TresPerNode=gres:gpu:4 \n"
)
CLAIMED = [(12, "RUNNING", "slurm-7.0"), (13, "FAILED", "slurm-7.0"), (14, "RUNNING", "slurm-8.0")]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs(tmp_path, monkeypatch)
    found.answer("scontrol show hostnames n[1-3]", "n1\nn2\nn3\n")
    found.answer("scontrol show hostnames n[1-2]", "n1\nn2\n")
    job_is(found)
    nodes_are(found)
    return found


def job_is(programs: Programs, nodes: str = "n[1-3]", name: str = "train", comment: str = "(null)", batch: int = 1) -> None:
    programs.answer("scontrol show job --details --oneliner 7", JOB.format(nodes=nodes, name=name, comment=comment, batch=batch))


def nodes_are(programs: Programs, **states: str) -> None:
    """By name, from the third column on: state|user|since|reason."""
    lines = [f"{name}|127.0.1.{name[1:]}|{states.get(name, 'allocated|Unknown|Unknown|none')}\n" for name in ("n1", "n2", "n3")]
    programs.answer("sinfo", "".join(lines * 2))  # once for each partition that a node is in


def seen(programs: Programs, line: str) -> NodeSeen:
    nodes_are(programs, n2=line)
    (found,) = [node for node in SlurmAllocation(STEP).look() if node.name == "n2"]
    return found


# -- commands --------------------------------------------------------------------------------------------------------------------


def test_a_step_s_own_variables_do_not_reach_them(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do options for what people look at: with a partition of `squeue`'s, a job of ours would not be found."""
    for name in ("SLURM_JOB_ID", "SLURM_NNODES", "SLURM_CONF", "SQUEUE_PARTITION", "SINFO_FORMAT", "SCONTROL_ALL", "SCANCEL_VERBOSE"):
        monkeypatch.setenv(name, "x")
    commands.run("sinfo", given="read this")
    given, around = programs.last()
    assert given == "read this"
    assert {name for name in around if name.startswith(("SLURM_", "SQ", "SINFO", "SC"))} == {"SLURM_CONF"}


@pytest.mark.parametrize(
    ("said", "away"),
    [
        ("slurm_load_node: Unable to contact slurm controller (connect failure)", True),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", True),
        ("sbatch: error: Resource temporarily unavailable, try again", True),
        ("slurm_update error: Invalid user id", False),
        ("", False),
    ],
)
def test_whether_what_has_failed_may_go_well_another_time(said: str, away: bool, programs: Programs) -> None:
    programs.answer("scontrol update JobId=7", error=f"{said}\n", code=1)
    with refused(SchedulerFailed, slurm.COMMAND_REFUSED, command="scontrol update JobId=7", answer=said or "exit code 1") as caught:
        commands.update("7", Comment="x")
    assert isinstance(caught.value, SchedulerAway) is away


def test_one_that_is_not_there_or_cannot_be_started_or_does_not_answer(programs: Programs, tmp_path: Path) -> None:
    programs.remove("sinfo")
    with refused(SchedulerFailed, slurm.NO_COMMAND, command="sinfo"):
        commands.nodes()
    (tmp_path / "bin" / "squeue").write_text("#!/nowhere\n")
    with refused(SchedulerFailed, slurm.COMMAND_NOT_STARTED, command="squeue", reason=os.strerror(errno.ENOENT)):
        commands.jobs("x")
    (tmp_path / "bin" / "scancel").write_text("#!/bin/sh\nread nothing </dev/zero\n")
    with refused(SchedulerAway, slurm.COMMAND_SILENT, command="scancel", seconds=0.2):
        commands.run("scancel", seconds=0.2)


def test_a_record_is_cut_and_in_one_line(programs: Programs) -> None:
    programs.answer("scancel", error="no\n\tway " * 10_000, code=1)
    with pytest.raises(SchedulerFailed) as caught:
        commands.cancel("7")
    assert len(str(caught.value)) < 600 and "no way no way" in str(caught.value)
    programs.answer("sinfo", "x" * (commands.MOST + 5))
    assert len(commands.run("sinfo")) == commands.MOST and commands.nodes() == []


def test_nodes(programs: Programs) -> None:
    programs.answer(
        "sinfo",
        "n3|127.0.1.3|draining|root|2026-11-26T04:40:00|a bad DIMM\n"
        "n4|127.0.1.4|MIXED*|Unknown|Unknown|none\n"
        "n4|127.0.1.4|MIXED*|Unknown|Unknown|none\n"
        "n5|127.0.1.5|down|root|2026-11-26T04:40:00|a|b | \x1b[31mc\x1c\u2028n4|x|idle|y|z|none\n"
        "nonsense\n\n",
    )
    found = {node.name: node for node in commands.nodes(["n3", "n4"])}
    assert found["n3"] == commands.NodeLine("n3", "127.0.1.3", "draining", "a bad DIMM", "root", "2026-11-26T04:40:00")
    assert (found["n4"].state, found["n4"].reason) == ("mixed*", ""), "what stands in another one's reason is no node"
    assert found["n5"].reason.startswith("a|b | \x1b[31mc") and len(found) == 3
    programs.answer("sinfo")
    assert commands.nodes() == []


def test_names_are_expanded_and_none_are_none(programs: Programs) -> None:
    assert commands.expand("n[1-3]") == ("n1", "n2", "n3") and commands.expand("") == ()


@pytest.mark.parametrize(
    ("name", "comment"),
    [
        ("train", "(null)"),
        ("lr=0.1 NodeList=n9 Partition=evil", "NodeList=n9 Account=evil BatchHost=n9 BatchFlag=0"),
    ],
)
def test_what_a_person_has_written_into_a_job_is_no_field_of_it(name: str, comment: str, programs: Programs) -> None:
    job_is(programs, name=name, comment=comment)
    found = commands.fields("7")
    assert {key: found[key] for key in ("NodeList", "Partition", "Account", "BatchHost", "TresPerNode")} == {
        "NodeList": "n[1-3]",
        "Partition": "gpu",
        "Account": "physics",
        "BatchHost": "n1",
        "TresPerNode": "gres:gpu:4",
    }
    assert commands.batch_host("7") == "n1"


def test_other_tasks_of_an_array_are_other_jobs(programs: Programs) -> None:
    """Of a number that is the array's, too, Slurm shows all of them, in any order."""
    shown = JOB.format(name="train", nodes="n[1-3]", batch=1, comment="(null)")
    other = shown.replace("JobId=7 ", "JobId=8 ArrayJobId=7 ArrayTaskId=1 ").replace("n[1-3]", "n9")
    programs.answer("scontrol show job", other + shown.replace("JobId=7 ", "JobId=7 ArrayJobId=7 ArrayTaskId=2 "))
    assert commands.fields("7")["NodeList"] == "n[1-3]" and commands.fields("8")["NodeList"] == "n9" and commands.fields("9") == {}
    programs.answer("squeue", "8|COMPLETED\n7|RUNNING\n")
    assert [commands.state(job) for job in ("7", "8", "9")] == ["RUNNING", "COMPLETED", ""]


def test_the_nodes_of_a_job_are_those_of_all_its_components(programs: Programs) -> None:
    """Which are shown as jobs that follow it. Slurm shrinks none of them."""
    shown = JOB.format(name="train", nodes="n[1-2]", batch=1, comment="(null)").replace("JobId=7 ", "JobId=7 HetJobId=7 HetJobOffset=0 ")
    other = shown.replace("JobId=7 HetJobId=7", "JobId=8 HetJobId=7").replace("NodeList=n[1-2]", "NodeList=n3")
    programs.answer("scontrol show job", shown + other)
    programs.answer("scontrol show hostnames n[1-2],n3", "n1\nn2\nn3\n")
    assert commands.nodes_of("7") == "n[1-2],n3"
    found = SlurmAllocation(replace(STEP, parts=2))
    assert not [node for node in found.look() if node.trouble]
    assert found.release(["n3"], "left n3") == [] and not programs.calls("srun")


def test_a_task_of_an_array_is_changed_and_ended_without_the_others(programs: Programs) -> None:
    found = SlurmAllocation(replace(STEP, task="3"))
    found.record("all well")
    assert programs.calls("squeue")[-1][1] == "--jobs=7_3" and programs.calls("scontrol")[-1][2] == "JobId=7_3"
    assert found.release(["n3"], "left n3") == ["n3"]
    assert programs.calls("scontrol")[-1][2:4] == ["JobId=7_3", "NodeList=n1,n2"]
    found.finish(["n1"])
    assert programs.calls("scancel") == [["scancel", "7_3"]]


def test_a_job_without_a_script_has_no_node_for_one(programs: Programs) -> None:
    job_is(programs, batch=0)
    assert commands.batch_host("7") == ""
    programs.answer("scontrol show job")
    assert commands.batch_host("7") == "" and commands.fields("7") == {}


def test_the_number_of_a_new_job(programs: Programs) -> None:
    programs.answer("sbatch", "12;cluster\n")
    assert commands.batch(("serve", "a b"), "--qos=urgent", around={**os.environ, "SECRET": "s"}) == "12"
    given, around = programs.last()
    assert given == "#!/bin/sh\nexec serve 'a b'\n" and around["SECRET"] == "s"
    (call,) = programs.calls("sbatch")
    assert call == ["sbatch", "--parsable", "--export=ALL", "--nodes=1", "--ntasks=1", "--output=/dev/null", "--qos=urgent"]


# -- Slurm's states of nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "trouble", "suspect"),
    [
        ("allocated", "", False),
        ("mixed", "", False),
        ("idle", "", False),
        ("completing", "", False),
        ("maint", "", False),
        ("mixed-", "", False),
        ("idle~", "", False),
        ("planned", "", False),
        ("allocated*", SILENT, False),
        ("draining", "drain", True),
        ("drained*", "drain", True),
        ("draining@", "drain", True),
        ("failing", "fail", True),
        ("fail*", "fail", True),
        ("DOWN*", "down", True),
        ("down$", "down", True),
        ("error", "down", True),
        ("inval", "down", True),
        ("", "", False),
        ("*", SILENT, False),
    ],
)
def test_what_a_state_means(state: str, trouble: str, suspect: bool, programs: Programs) -> None:
    found = seen(programs, f"{state}|Unknown|Unknown|none")
    assert (found.trouble, found.suspect, found.state, found.reason) == (trouble, suspect, state.lower(), has(state.lower()))


def has(state: str, reason: str = "", user: str = "") -> str:
    return slurm.NODE_STATE(state=state, reason=reason, user=user)


def test_the_source_and_time_of_a_reason(programs: Programs) -> None:
    found = seen(programs, "draining|root|2026-11-26T04:40:00|a bad | DIMM\x1b[2J")
    assert found.reason == has("draining", ": a bad | DIMM\\x1b[2J", " (root)")
    assert time.localtime(found.since)[:5] == (2026, 11, 26, 4, 40)


@pytest.mark.parametrize("since", ["Unknown", "", "2026-13-26T04:40:00", "0000-00-00T00:00:00", "now", "99999-01-01T00:00:00"])
def test_a_time_that_is_none_is_not_known(since: str, programs: Programs) -> None:
    assert seen(programs, f"down|root|{since}|x").since == 0.0


def test_a_node_that_is_not_the_job_s_any_more_was_taken(programs: Programs) -> None:
    job_is(programs, "n[1-2]")
    nodes_are(programs, n3="idle|Unknown|Unknown|none")
    found = {node.name: (node.trouble, node.suspect, node.reason) for node in SlurmAllocation(STEP).look()}
    assert found == {
        "n1": ("", False, has("allocated")),
        "n2": ("", False, has("allocated")),
        "n3": (TAKEN, True, slurm.NODE_TAKEN(state="idle")),
    }


def test_the_job_s_nodes_are_asked_for_seldom_but_always_when_one_is_in_trouble(programs: Programs) -> None:
    found = SlurmAllocation(STEP)

    def asked() -> int:
        before = len(programs.calls("scontrol"))
        found.look()
        return len([call for call in programs.calls("scontrol")[before:] if call[2] == "job"])

    assert [asked(), asked(), asked()] == [1, 0, 0]
    nodes_are(programs, n3="down*|root|2026-11-26T04:40:00|Not responding")
    assert [asked(), asked()] == [1, 1]


# -- calls of Slurm --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "comment"),
    [
        ("(null)", "understudy: all well"),
        ("", "understudy: all well"),
        ("project=7 | x", "project=7 | x | understudy: all well"),
        ("project=7 | understudy: 1 incident", "project=7 | understudy: all well"),
        ("understudy: 1 incident", "understudy: all well"),
        ("not understudy", "not understudy | understudy: all well"),
    ],
)
def test_a_comment_of_another_writer_stays_before_ours(theirs: str, comment: str, programs: Programs) -> None:
    programs.answer("squeue", f"{theirs}\n")
    found = SlurmAllocation(STEP)
    for _ in range(2):
        found.record("all well")
        assert programs.calls("scontrol")[-1] == ["scontrol", "update", "JobId=7", f"Comment={comment}"]
    assert len(programs.calls("squeue")) == 1


def test_a_comment_is_plain_and_not_too_long(programs: Programs) -> None:
    found = SlurmAllocation(STEP)
    found.record('a "b"\x1b[2J' + "x" * 5000)
    (*_, comment) = programs.calls("scontrol")[-1]
    assert comment.startswith("Comment=understudy: a 'b'\\x1b[2Jxx") and len(comment) == len("Comment=") + 1000


def test_a_node_is_given_back_when_our_task_there_has_ended(programs: Programs) -> None:
    """The node of the batch script stays, and one where the task cannot be ended is left to Slurm."""
    found = SlurmAllocation(STEP)
    programs.answer("srun --quiet --jobid=7 --nodelist=n2", error="srun: error: Task launch failed\n", code=1)
    assert found.release(["n1", "n2", "n3", "n9"], "left n3") == ["n3"]
    ended, update = programs.calls("srun")[-1], programs.calls()[-1]
    assert ended[:3] == ["srun", "--jobid=7", "--nodelist=n3"] and ended[-3:] == ["understudy.schedulers.slurm.leave", "7", "0"]
    assert update == ["scontrol", "update", "JobId=7", "NodeList=n1,n2", "Comment=understudy: left n3"]
    programs.answer("sinfo", "n1|127.0.1.1|mixed|Unknown|Unknown|none\n")
    found.look()
    assert programs.calls("sinfo")[-1][-1] == "--nodes=n1,n2", "what was given back is not looked at"


def test_a_node_that_slurm_has_taken_is_not_given_back(programs: Programs) -> None:
    job_is(programs, "n[1-2]")
    assert SlurmAllocation(STEP).release(["n3"], "lost n3") == []
    assert not programs.calls("srun") and not [call for call in programs.calls() if "update" in call]


def test_a_reason_for_a_drain_is_one_plain_line(programs: Programs) -> None:
    SlurmAllocation(STEP).drain(["n3", "n2"], "a bad\nDIMM\x1b|" + "x" * 200_000)
    (*words, reason) = programs.calls()[-1]
    assert words == ["scontrol", "update", "NodeName=n2,n3", "State=DRAIN"]
    assert reason.startswith("Reason=a bad DIMM\\x1b|xx") and len(reason) <= 1010


@pytest.mark.parametrize(("missing", "ended"), [((), False), (("n2", "n3"), False), (("n1",), True), (("n1", "n2"), True)])
def test_a_job_whose_script_is_lost_is_ended_here(missing: tuple[str, ...], ended: bool, programs: Programs) -> None:
    SlurmAllocation(STEP).finish(missing)
    assert (["scancel", "7"] in programs.calls()) is ended


@pytest.mark.parametrize(("state", "ended"), [("RUNNING", []), ("COMPLETING", ["12"]), ("CANCELLED", ["12"]), ("TIMEOUT", ["12"])])
def test_what_was_claimed_goes_with_a_job_that_slurm_has_ended_and_only_then(state: str, ended: list[str], programs: Programs) -> None:
    said = JOB.format(nodes="n[1-3]", name="train", comment="JobState=RUNNING", batch=1).replace("JobState=RUNNING", f"JobState={state}", 1)
    programs.answer("scontrol show job", said)
    claimed = [f"{job}|{how}|n5|None|understudy: spare of {of}, claim {job}; x\n" for job, how, of in CLAIMED]
    programs.answer("squeue", "".join(claimed))
    SlurmAllocation(STEP).give_all_back()
    assert [call[-1] for call in programs.calls("scancel")] == ended
