"""Messages to a user: misuse the first time it happens, exceptions, and losses that cannot be survived."""

from __future__ import annotations

import pytest
from tests.integration.training import Training, survived, training
from tests.message_texts import has

from understudy.messages import (
    coverage,
    losses,
    newcomers,
    recoveries,
    registered,
    set_up,
    training_evidence,
    transactions,
    worker_processes,
)
from understudy.messages.base import Message

__all__ = ["training"]


def test_misuse_ends_the_job_the_first_time(training: Training) -> None:
    """Refused before the first step. What else is: `tests/worker/api/test_wrong_use.py`, where each rule is checked."""
    outcome = training.run("misuse.py", "unregistered model", spares=0)
    assert outcome.code == 1
    (line,) = [line for line in outcome.output.splitlines() if has(line, losses.SCRIPT_FAILED, step=0)]
    assert "rank " in line and "DistributedDataParallel over Linear" in line
    assert "Traceback" in outcome.output
    assert "misuse.py" in outcome.output


def test_a_collective_after_the_vote_is_refused_the_first_time(training: Training) -> None:
    outcome = training.run("misuse.py", "collective after the vote", spares=0)
    assert outcome.code == 1
    assert has(outcome.output, transactions.COLLECTIVES_AFTER_VOTE, function="train", collectives="1 collective")
    assert outcome.ask("status")["step"] == 0


def test_notices_without_any_failure(training: Training) -> None:
    outcome = training.run("misuse.py", "collective outside", spares=0)
    assert outcome.code == 0, outcome.output
    notices = outcome.ask("status")["notices"]
    for message, arguments in (
        (transactions.COLLECTIVES_OUTSIDE, {"count": 1, "where": "between transaction 0 and 1"}),
        (transactions.CHANGES_AFTER_VOTE, {"names": "counter/value", "point": "after train"}),
        (transactions.COLLECTIVES_OUTSIDE, {"count": 1, "where": "after the last transaction"}),
        (coverage.COVERED, {}),
    ):
        assert any(has(notice, message, **arguments) for notice in notices), notices
        assert has(outcome.output, message, **arguments)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("after backward", registered.GRADIENTS_NOT_KEPT),
        ("before backward", registered.GRADIENTS_NOT_GIVEN),
    ],
)
def test_a_loss_in_a_step_that_adds_to_gradients_which_others_had_dropped(where: str, what: Message, training: Training) -> None:
    """Whether the others had done so by then or not: no rank has a copy of these gradients, and the newcomer would add to none."""
    outcome = training.run("misuse.py", "adds to gradients", faults=f"{where}:5:1")
    assert outcome.code == 1
    assert has(outcome.output, what)
    assert has(outcome.output, losses.SCRIPT_FAILED, step=5)


def test_a_rank_that_leaves_its_loop_earlier_than_the_others(training: Training) -> None:
    """No rank waits forever: the others vote on a transaction that it will never reach."""
    outcome = training.run("misuse.py", "leaves early", spares=0)
    assert outcome.code == 1, outcome.output
    either = (
        transactions.OTHER_TRANSACTIONS,
        training_evidence.LEFT_BEHIND,
    )  # by the ranks themselves, or by the watch, which may be first
    assert any(has(outcome.output, message) for message in either), outcome.output


def test_ranks_that_leave_their_loop_while_another_one_computes_on(training: Training) -> None:
    """Nor does that one wait for them in a collective, while they wait for it in the comparison at the end."""
    outcome = training.run("misuse.py", "one goes on", ranks=3, spares=0)
    assert outcome.code == 1, outcome.output
    assert has(outcome.output, losses.SCRIPT_FAILED, rank=2, worker="w2", node="node0")
    assert has(outcome.output, training_evidence.LEFT_BEHIND, where="transaction 5")


def test_a_rank_that_trains_where_another_one_does_not(training: Training) -> None:
    outcome = training.run("misuse.py", "one trains", spares=0)
    assert outcome.code == 1, outcome.output
    assert has(outcome.output, losses.SCRIPT_FAILED, rank=0, worker="w0", node="node0")
    assert has(outcome.output, training_evidence.LEFT_BEHIND, where="the first transaction", others=1)


def test_a_newcomer_that_reaches_the_end_without_its_state(training: Training) -> None:
    outcome = training.run("misuse.py", "newcomer goes elsewhere", faults="after backward:3:1")
    assert outcome.code == 1, outcome.output
    assert has(outcome.output, newcomers.AT_THE_END, rank=1)


def test_a_loss_in_a_collective_outside_any_transaction(training: Training) -> None:
    outcome = training.run("misuse.py", "collective outside", faults="outside:3:1")
    assert outcome.code == 1
    assert has(outcome.output, transactions.FAILED_OUTSIDE, rank=0)


def test_a_rank_whose_connections_break_between_its_last_collective_and_its_vote_reports_it(training: Training) -> None:
    reference = training.undisturbed("broken.py")
    outcome = training.begin("broken.py", "break").ends()
    (incident,) = survived(outcome, reference, losses=0)
    assert incident["ranks"] == [], outcome.output
    assert has(incident["notes"][0], worker_processes.GROUPS_BROKE), incident


def test_a_step_in_which_a_wait_was_ended_is_not_voted_for(training: Training) -> None:
    """Its collective seems to have succeeded, with any content, and the ranks would agree about what came of it."""
    reference = training.undisturbed("broken.py")
    outcome = training.begin("broken.py", "wake").ends()
    (incident,) = survived(outcome, reference, losses=0)
    assert incident["ranks"] == [], outcome.output
    assert has(incident["notes"][0], worker_processes.GROUPS_BROKE), incident


def test_an_exception_of_one_rank_ends_the_job_and_burns_no_spare(training: Training) -> None:
    outcome = training.run("misuse.py", "exception")
    assert outcome.code == 1
    assert has(outcome.output, losses.SCRIPT_FAILED, rank=1, worker="w1", node="node0", step=3)
    assert 'raise ValueError("wrong on purpose")' in outcome.output
    assert recoveries.TAKES_OVER.code not in outcome.output
    assert outcome.incidents == []
    status = outcome.ask("status")
    assert status["state"] == "failed"
    assert [spare["worker"] for spare in status["spares"]] == ["w2"]


def test_sys_exit_gives_its_code(training: Training) -> None:
    outcome = training.run("misuse.py", "exit")
    assert outcome.code == 3
    assert outcome.incidents == []


def test_a_newcomer_that_sets_up_otherwise_names_the_first_difference(training: Training) -> None:
    outcome = training.run("mismatch.py", faults="talking:0:1")
    assert outcome.code == 1
    line = next(line for line in outcome.output.splitlines() if has(line, set_up.COLLECTIVE_DIFFERS, rank=1, number=1))
    here, there = (line.index(operator) for operator in ("broadcast_ on", "allreduce_ on"))
    assert here < there, "the newcomer's, then the lost rank's"


def test_without_a_replica_the_coverage_warns_before_the_first_step_and_a_loss_ends_the_job(training: Training) -> None:
    outcome = training.run("sharded.py", faults="before the vote:0:1")
    assert outcome.code == 1
    reported, _, after = outcome.output.partition(losses.KILLED.code)
    assert has(reported, coverage.UNCOVERED, who="ranks 0, 1 hold")
    assert has(after, newcomers.STATE_NOWHERE, rank=1)
    assert outcome.ask("status")["state"] == "failed"
