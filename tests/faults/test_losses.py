"""Losses that are more than one rank killed once: rank 0's, several at once, in a row, a spare's, a newcomer's, and hangs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.faults.harness import (
    LIMIT,
    Fault,
    Job,
    Outcome,
    Reference,
    assert_identical,
    assert_incidents,
    assert_survivors_stayed,
    either,
    in_step,
    redone,
)
from tests.faults.modes import every_mode
from tests.integration.processes import send, wait_until

from understudy.common.names import JOURNAL
from understudy.core.events import Committed
from understudy.orchestrator import journal

Start = Callable[..., Job]
References = Callable[..., Reference]


@every_mode
def test_two_at_once_and_two_in_a_row(mode: str, start: Start, reference: References) -> None:
    """Two ranks at the same moment, then the same rank twice in one step, then rank 0 and a donor of the recovery from that.

    Ranks 0 and 3 leave replicas of all that they hold in every mode (in tp, 0 and 1, and 2 and 3, share their buffers).
    """
    faults = (
        Fault("between backward and vote", rank=0, also=3, step=2),
        Fault("last collective of backward", rank=1, step=6),
        Fault("between backward and vote", rank=1, step=6),
        Fault("forward", rank=0, step=10),
        Fault("donate", rank=3, step=10),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    assert_identical(job, undisturbed)
    incidents = job.incidents()
    assert [sorted(part["rank"] for part in incident["ranks"]) for incident in incidents] in (
        [[0, 3], [1], [1], [0, 3]],
        [[0, 3], [1, 1], [0, 3]],  # the second one came before every rank had committed after the first one
    )
    for incident in incidents:
        assert incident["steps_lost"] == 0 and incident["digests_verified"] > 0, incident
    assert_survivors_stayed(job, {0: 2, 1: 2, 3: 2})


@every_mode
def test_newcomer_lost_during_its_promotion(mode: str, start: Start, reference: References) -> None:
    """In its set-up, in the middle of its transfer, verified but before any other knows, and as it attaches."""
    faults = (
        Fault("forward", rank=1, step=2),
        Fault("newcomer in its set-up", rank=1),
        Fault("last collective of backward", rank=3, step=6),
        Fault("transfer", rank=3),
        Fault("vote passed", rank=0, step=10),
        Fault("verified", rank=0),
        Fault("applied", rank=2, step=13),
        Fault("attached", rank=2),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    assert_identical(job, undisturbed, unlogged={(0, "step 11"), (2, "step 14")})
    assert_incidents(
        job,
        Outcome([1, 1], {in_step(2)}),
        Outcome([3, 3], {in_step(6)}),
        Outcome([0, 0], {in_step(10) + 1}),
        Outcome([2, 2], {in_step(13) + 1}),
    )
    assert_survivors_stayed(job, {0: 2, 1: 2, 2: 2, 3: 2})


def test_spare_lost(start: Start, reference: References) -> None:
    """A spare that is not used yet costs nothing; another one is started, and takes the next rank that is lost."""
    gate = Fault("forward", rank=0, step=3, action="gate")
    loss = Fault("first collective of backward", rank=2, step=5)
    undisturbed = reference("ddp")
    job = start("ddp", gate, loss, spares=1)

    def warm_spares() -> list[Any]:
        return [spare for spare in job.ask("status")["spares"] if spare["state"] == "warm"]

    job.wait_for_fault(gate)
    wait_until(warm_spares, "the spare is warm", LIMIT)
    (lost,) = warm_spares()
    send(lost["pid"], signal.SIGKILL)
    wait_until(lambda: any(spare["pid"] != lost["pid"] for spare in warm_spares()), "another spare is warm", LIMIT)
    assert job.incidents() == []
    job.open_gate(gate)
    assert_identical(job, undisturbed)
    (incident,) = assert_incidents(job, redone(2, in_step(5)))
    assert incident["new_worker"] != lost["worker"]
    assert_survivors_stayed(job, {2: 1})


@pytest.mark.parametrize(
    ("mode", "faults", "outcomes"),
    [
        (
            "ddp",
            (
                Fault("forward", rank=0, step=4, action="sigstop"),
                Fault("between backward and vote", rank=2, step=9, action="hang"),
            ),
            (redone(0, in_step(4)), redone(2, in_step(9))),
        ),
        pytest.param(
            "buffers",  # several ranks are behind in the forward and in the vote, and only one of them waits for no other
            (
                Fault("forward", rank=2, step=4, action="hang"),
                Fault("vote agreement", rank=1, step=9, action="hang"),
            ),
            (redone(2, in_step(4)), either(1, in_step(9))),
        ),
        ("hsdp", (Fault("first collective of backward", rank=3, step=4, action="sigstop"),), (redone(3, in_step(4)),)),
        pytest.param("tp", (Fault("vote copies", rank=1, step=4, action="sigstop"),), (either(1, in_step(4)),)),
    ],
)
def test_hangs(mode: str, faults: tuple[Fault, ...], outcomes: tuple[Outcome, ...], start: Start, reference: References) -> None:
    """A process that is stopped, and one that lives but does not go on: lost like a killed one, after the limit."""
    undisturbed = reference(mode)
    job = start(mode, *faults, flags=("--hang-limit", "4", "--alone-limit", "15"))
    in_vote = {(fault.rank, f"step {fault.step + 1}") for fault in faults if fault.step and fault.point.startswith("vote")}
    assert_identical(job, undisturbed, unlogged=in_vote)
    assert_incidents(job, *outcomes, causes={"hung"})
    assert_survivors_stayed(job, {fault.rank: 1 for fault in faults})


def test_process_of_the_data_loader(start: Start, reference: References) -> None:
    """A killed process of the loader takes its rank with it, which is recovered like any other."""
    arguments = ("--data-workers", "2")
    undisturbed = reference("ddp", *arguments)
    fault = Fault("process of the data loader", rank=2, step=6)  # of the second epoch
    job = start("ddp", fault, arguments=arguments)
    near = {(2, line) for line in ("step 6", "evaluation 6", "step 7", "step 8")}
    assert_identical(job, undisturbed, unlogged=near, borrowed=near)
    assert_incidents(job, Outcome([2], set(range(in_step(5), in_step(8) + 1))), causes={"exited"})
    assert_survivors_stayed(job, {2: 1})


@every_mode
def test_before_the_first_transaction(mode: str, start: Start, reference: References) -> None:
    """Nothing has been done yet, so all start from scratch."""
    undisturbed = reference(mode)
    job = start(mode, Fault("set-up", rank=1))
    assert_identical(job, undisturbed)
    (incident,) = job.incidents()
    assert incident["decision"] == "start anew" and incident["steps_lost"] == 0
    recorded = journal.read(job.run_dir / JOURNAL)
    assert recorded is not None
    commits = [event.generation for _, event in recorded.events if isinstance(event, Committed)]
    assert commits == [2] * 4, "the ranks say that they are at work in the generation that they were given, so the incident ends here"


@every_mode
def test_end_of_the_training(mode: str, start: Start, reference: References) -> None:
    """In the very last vote, and after the loop, where other ranks may have finished."""
    faults = (
        Fault("section vote passed", rank=1, step=24),
        Fault("after the loop", rank=2, step=24),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    assert_identical(job, undisturbed, unlogged={(1, "evaluation 24")})
    assert sum(len(incident["ranks"]) for incident in job.incidents()) == 2
