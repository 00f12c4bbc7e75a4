"""The first transaction after a recovery: a newcomer that issues something else is named, and legal programs are not blocked."""

from __future__ import annotations

import signal

import pytest
from tests.integration.processes import pid_of, send, wait_until
from tests.integration.training import LONG, Outcome, Training, survived, training
from tests.message_texts import codes, has

from understudy.messages import calls, coverage, losses, newcomers, recoveries

__all__ = ["training"]


def named(outcome: Outcome) -> str:
    """The message. The job has ended with it: no survivor has crashed, and no second spare was used."""
    assert outcome.code == 1, outcome.output
    assert codes(outcome.output).count(recoveries.TAKES_OVER.code) == 1, outcome.output
    assert "SIGABRT" not in outcome.output and losses.CRASHED.code not in outcome.output, outcome.output
    assert newcomers.AT_THE_END.code not in outcome.output, outcome.output
    line = failure(outcome)
    assert has(line, newcomers.DOES_NOT_FIT, newcomers="rank 1"), outcome.output
    return line


def failure(outcome: Outcome) -> str:
    return next((line for line in outcome.output.splitlines() if losses.SCRIPT_FAILED.code in line), "")


@pytest.mark.parametrize(
    ("what", "theirs", "its"),
    [
        ("size", "allreduce (SUM) of float32 (4, 8)", "allreduce (SUM) of float32 (4, 16)"),
        ("bucket", "allreduce (SUM) of float32 (36,)", "allreduce (SUM) of float32 (3,)"),
        ("operation", "allreduce (SUM) of float32 (16,)", "broadcast (root 0) of float32 (1000,)"),
    ],
)
def test_a_newcomer_that_issues_something_else_is_named_with_the_survivors(training: Training, what: str, theirs: str, its: str) -> None:
    line = named(training.run("unlike.py", what, ranks=3, spares=3, faults="before the vote:2:1"))
    first, others = f"ranks 0 (w0), 2 (w2) issue {theirs}", [f"rank 1 ({spare}) issues {its}" for spare in ("w3", "w4", "w5")]
    assert any(has(line, calls.CALLS_DIFFER, first=first, others=other) for other in others), line  # whichever was warm first


def test_a_newcomer_whose_first_section_is_another_one_is_named(training: Training) -> None:
    """Its first steps were right."""
    line = named(training.run("unlike.py", "section", ranks=3, spares=3, faults="before the vote:2:1"))
    first, others = "ranks 0 (w0), 2 (w2) issue allreduce (SUM) of float32 (4, 8)", ("w3", "w4", "w5")
    differ = [f"rank 1 ({spare}) issues allreduce (SUM) of float32 (4, 16)" for spare in others]
    assert any(has(line, calls.CALLS_DIFFER, first=first, others=one) for one in differ), line


def test_without_the_check_healthy_survivors_are_ended_by_the_library(training: Training) -> None:
    """What all of this is for. If it fails, Gloo has learned to raise."""
    outcome = training.run("unlike.py", "size", "unchecked", ranks=3, spares=3, faults="before the vote:2:1")
    assert outcome.code == 1
    assert losses.CRASHED.code in outcome.output and "SIGABRT" in outcome.output


def test_a_newcomer_that_votes_without_a_collective_is_named(training: Training) -> None:
    line = named(training.run("unlike.py", "fewer", ranks=3, spares=3, faults="before the vote:2:1"))
    assert has(line, newcomers.VOTED_WITHOUT, rank=0, other=1), line
    assert "allreduce (SUM) of float32 (16,), number 2 on group" in line, line


def test_ranks_that_wait_for_each_other_where_the_script_waits_too_are_named(training: Training) -> None:
    line = named(training.run("unlike.py", "group", faults="before the vote:2:1"))
    assert any(has(line, newcomers.WAIT_FOR_EACH_OTHER, ranks=ranks) for ranks in ("ranks 0 and 1", "ranks 1 and 0")), line
    assert "rank 0 in allreduce (SUM) of float32 (16,), number 2 on group" in line
    assert "rank 1 in allreduce (SUM) of float32 (16,), number 0 on group" in line


def test_a_message_that_does_not_fit_is_named(training: Training) -> None:
    line = named(training.run("unlike.py", "message", faults="before the vote:2:1"))
    sent = {"sender": "rank 0 (w0)", "sent": 16, "sent_call": "send of float32 (4,)", "receiver_rank": 1}
    assert has(line, calls.MESSAGE_TOO_LONG, **sent, receiver="rank 1 (w2)", expected=4), line


def test_a_message_that_is_never_sent_is_named(training: Training) -> None:
    line = named(training.run("unlike.py", "never sent", faults="before the vote:2:1"))
    assert has(line, newcomers.VOTED_WITHOUT, rank=0, other=1), line
    assert "recv of float32 (4,), message 0 on group" in line, line


def test_where_a_drill_has_passed_a_difference_is_found_with_the_vote(training: Training) -> None:
    """A newcomer that takes the maximum where the others add up: nothing crashes, and no other check would notice."""
    command = ["-m", "understudy.cli", "run", "--nproc-per-node", "2", "--spares", "1", "--run-dir", "FOLDER/run", "--drill", "3"]
    started = training.start(command, "unlike.py", "reduction")
    status: dict[str, list[dict[str, object]]] = {}

    def proven() -> bool:
        status.update(started.status())
        spares = any(spare["state"] == "warm" for spare in status["spares"])
        return spares and [rank["proven"] is not None for rank in status["ranks"]] == [True, True]

    started.wait_for(coverage.COVERED.code)
    wait_until(proven, "a drill", LONG)
    (started.folder / "unlike").touch()
    send(pid_of(lambda: started.status()["ranks"][1]), signal.SIGKILL)
    outcome = started.ends()
    assert outcome.code == 1, outcome.output
    line = failure(outcome)
    assert has(line, newcomers.DOES_NOT_FIT, newcomers="rank 1"), outcome.output
    assert has(line, calls.SEQUENCES_DIFFER, count=3, other_rank=1), line


@pytest.mark.parametrize("rank", [0, pytest.param(2)])
def test_a_loss_ends_all_waits_for_what_is_not_announced_yet(training: Training, rank: int) -> None:
    """Of a rank for which the others wait; also where it serves the store in which they do."""
    reference = training.undisturbed("legal.py", "objects", ranks=3)
    lost = training.run("legal.py", "objects", ranks=3, spares=3, faults=f"before the vote:2:1,again:2:{rank}")
    (incident,) = survived(lost, reference, 2)
    assert incident["seconds"] < 30, incident  # a wait for a store that is gone takes 30


_MORE = ("after_a_collective", "ring", "batch", "objects")
LEGAL = ["crossed", "uneven", *(pytest.param(what) for what in _MORE)]


@pytest.mark.parametrize("what", LEGAL)
def test_legal_programs_are_not_blocked(training: Training, what: str) -> None:
    """Lost before the vote, and between collectives that the ranks issue in different orders and those that they issue together."""
    reference = training.undisturbed("legal.py", what, ranks=3)
    lost = training.run("legal.py", what, ranks=3, spares=3, faults="before the vote:2:1,in the middle:4:2,in the middle:6:0")
    survived(lost, reference, 3)
    assert (newcomers.NOT_CHECKED.code in lost.output) == (what in ("crossed", "after_a_collective")), lost.output
