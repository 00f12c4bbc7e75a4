"""What a user hears: misuse the first time it happens, exceptions, and losses that cannot be survived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.diagonal import whole
from tests.integration.processes import marked
from tests.integration.training import Outcome, Training, survived, training
from tests.said import said

from understudy.messages import coverage, losses, newcomers, recoveries, training_evidence, transactions, worker_processes

__all__ = ["training"]


MISUSES = [
    ("unregistered model", "DistributedDataParallel over Linear is not registered"),
    (
        "unregistered plain model",
        "optimizer optimizer steps parameters of a model that is not registered: add the model to job.register",
    ),
    ("unregistered optimizer", "AdamW is stepped but not registered: add it to job.register(...)"),
    ("unmovable", "job.register(file=...): a TextIOWrapper has no state_dict and load_state_dict"),
    ("optimizer in a section", "optimizer.step inside the section evaluate: a section changes nothing; use @job.step"),
    ("optimizer outside", "optimizer.step outside a transaction: wrap the training step in @job.step"),
    ("batch changed in place", "train changes its arguments in place, so it could not be redone; work on a copy of them"),
    ("registered twice", "job.register(counter=...): this name is taken"),
    ("registered late", "job.register after the first transaction: register everything before training starts"),
    ("unregistered schedule", "optimizer optimizer has a learning rate schedule that is not registered: add it to job.register(...)"),
    ("FSDP1", "FullyShardedDataParallel (FSDP1) is not covered: use torch.distributed.fsdp.fully_shard (FSDP2)"),
    ("unknown backend", "process groups with backend fake cannot be re-joined after a loss; use gloo"),
    ("nested loops", "job.batches or job.steps inside another one: only the outer loop can be continued on another worker"),
    ("nested", "evaluate is a transaction inside a transaction (step train); call one after the other"),
]


@pytest.fixture(scope="module")
def misused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Outcome]]:
    """What came of each. They run three at a time: most of it is importing torch."""
    folder = tmp_path_factory.mktemp("misuses")

    def run(number: int, case: str) -> Outcome:
        (folder / str(number)).mkdir()
        return Training(folder / str(number), mark).run("misuse.py", case, ranks=1, spares=0)

    with marked() as mark, ThreadPoolExecutor(3) as pool:
        running = {case: pool.submit(run, number, case) for number, (case, _) in enumerate(MISUSES)}
        yield lambda case: running[case].result()


@pytest.mark.parametrize(("case", "message"), MISUSES)
def test_misuse_is_told_the_first_time(misused: Callable[[str], Outcome], case: str, message: str) -> None:
    outcome = misused(case)
    assert outcome.code == 1
    assert message in outcome.output
    assert "Traceback" in outcome.output
    assert "misuse.py" in outcome.output


def test_a_collective_after_the_vote_is_refused_the_first_time(training: Training) -> None:
    outcome = training.run("misuse.py", "collective after the vote", spares=0)
    assert outcome.code == 1
    assert said(outcome.output, transactions.COLLECTIVES_AFTER_VOTE, function="train", collectives="1 collective")
    assert outcome.ask("status")["step"] == 0


def test_rank_local_state_that_is_too_large(training: Training) -> None:
    """4 MB that differ from rank to rank, where 1 MB is allowed."""
    started = training.begin("misuse.py", "too large", spares=0, UNDERSTUDY_LOCAL_LIMIT=str(1 << 20))
    outcome = started.ends()
    assert outcome.code == 1
    assert "coverage: rank" in outcome.output
    assert "4.2 MB of rank-local state would have to be copied to another rank with every vote, more than 1.0 MB" in outcome.output


def test_notices_without_any_failure(training: Training) -> None:
    outcome = training.run("misuse.py", "collective outside", spares=0)
    assert outcome.code == 0, outcome.output
    notices = outcome.ask("status")["notices"]
    for message, arguments in (
        (transactions.COLLECTIVES_OUTSIDE, {"count": 1, "where": "between transaction 0 and 1"}),
        (transactions.CHANGES_AFTER_VOTE, {"names": "counter/value", "point": "after train"}),
        (transactions.COLLECTIVES_OUTSIDE, {"count": 1, "where": "behind the last transaction"}),
        (coverage.COVERED, {}),
    ):
        assert any(said(notice, message, **arguments) for notice in notices), notices
        assert said(outcome.output, message, **arguments)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("after backward", "which all steps so far had dropped"),
        *whole(("before backward", "a worker that has taken a rank since")),
    ],
)
def test_a_loss_in_a_step_that_adds_to_gradients_which_others_had_dropped(where: str, what: str, training: Training) -> None:
    """Whether the others had done so by then or not: nobody has a copy of these gradients, and the newcomer would add to none."""
    outcome = training.run("misuse.py", "adds to gradients", faults=f"{where}:5:1")
    assert outcome.code == 1
    assert "this step adds to gradients of an earlier step, " in outcome.output
    assert what in outcome.output
    assert "failed at step 5" in outcome.output


def test_a_rank_that_leaves_its_loop_earlier_than_the_others(training: Training) -> None:
    """Nobody waits for ever: the others vote on a transaction that it will never come to."""
    outcome = training.run("misuse.py", "leaves early", spares=0)
    assert outcome.code == 1, outcome.output
    assert said(outcome.output, transactions.OTHER_TRANSACTIONS)


def test_ranks_that_leave_their_loop_while_another_one_computes_on(training: Training) -> None:
    """Nor does that one wait for them in a collective, while they wait for it in the comparison at the end."""
    outcome = training.run("misuse.py", "one goes on", ranks=3, spares=0)
    assert outcome.code == 1, outcome.output
    assert "rank 2 (w2 on node node0)" in outcome.output
    assert said(outcome.output, training_evidence.LEFT_BEHIND, where="transaction 5")


def test_a_rank_that_trains_where_another_one_does_not(training: Training) -> None:
    outcome = training.run("misuse.py", "one trains", spares=0)
    assert outcome.code == 1, outcome.output
    assert "rank 0 (w0 on node node0)" in outcome.output
    assert said(outcome.output, training_evidence.LEFT_BEHIND, where="the first transaction", others=1)


def test_a_newcomer_that_comes_to_the_end_without_its_state(training: Training) -> None:
    outcome = training.run("misuse.py", "newcomer goes elsewhere", faults="after backward:3:1")
    assert outcome.code == 1, outcome.output
    assert said(outcome.output, newcomers.AT_THE_END, rank=1)


def test_a_loss_in_a_collective_outside_any_transaction(training: Training) -> None:
    outcome = training.run("misuse.py", "collective outside", faults="outside:3:1")
    assert outcome.code == 1
    assert said(outcome.output, transactions.FAILED_OUTSIDE, rank=0)


def test_a_rank_whose_connections_break_between_its_last_collective_and_its_vote_says_so(training: Training) -> None:
    reference = training.undisturbed("broken.py")
    outcome = training.begin("broken.py", "break").ends()
    (incident,) = survived(outcome, reference, losses=0)
    assert incident["ranks"] == [], outcome.output
    assert said(incident["notes"][0], worker_processes.GROUPS_BROKE), incident


def test_a_step_in_which_a_wait_was_ended_is_not_voted_for(training: Training) -> None:
    """Its collective seems to have succeeded, with any content, and the ranks would agree about what came of it."""
    reference = training.undisturbed("broken.py")
    outcome = training.begin("broken.py", "wake").ends()
    (incident,) = survived(outcome, reference, losses=0)
    assert incident["ranks"] == [], outcome.output
    assert said(incident["notes"][0], worker_processes.GROUPS_BROKE), incident


def test_an_exception_of_one_rank_ends_the_job_and_burns_no_spare(training: Training) -> None:
    outcome = training.run("misuse.py", "exception")
    assert outcome.code == 1
    assert said(outcome.output, losses.SCRIPT_FAILED, rank=1, worker="w1", node="node0", step=3)
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
    told = [line for line in outcome.output.splitlines() if "collective number 1 of this newcomer's set-up" in line]
    line = told[0]
    assert "broadcast_" in line.split("the lost rank's")[0]
    assert "allreduce_" in line.split("the lost rank's")[1]
    assert "does not set up the same way twice" in line


def test_without_a_replica_the_coverage_says_so_before_the_first_step_and_a_loss_ends_the_job(training: Training) -> None:
    outcome = training.run("sharded.py", faults="before the vote:0:1")
    assert outcome.code == 1
    told, _, after = outcome.output.partition(losses.KILLED.code)
    assert said(told, coverage.UNCOVERED, who="ranks 0, 1 hold")
    assert said(after, newcomers.STATE_NOWHERE, rank=1)
    assert outcome.ask("status")["state"] == "failed"
