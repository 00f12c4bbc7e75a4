"""Spares that have been through the script's set-up as a rank before it is lost (`--prepare`)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.faults.harness import LIMIT, RANKS, Fault, Job, Reference, assert_identical, assert_incidents, either, in_step, redone
from tests.integration.processes import send, wait_until
from tests.message_texts import has

from understudy.messages import drills

Start = Callable[..., Job]
References = Callable[..., Reference]

GATE = Fault("forward", rank=0, step=3, action="gate")
ALL = ("--prepare", str(len(RANKS)))


def prepared(job: Job) -> dict[int, str]:
    """Who is prepared for which rank."""
    spares: list[dict[str, Any]] = job.ask("status")["spares"]
    return {spare["rank"]: spare["worker"] for spare in spares if spare["state"] == "prepared"}


def when_prepared(job: Job, *ranks: int) -> dict[int, str]:
    """All ranks wait at the gate meanwhile."""
    job.wait_for_fault(GATE)
    wait_until(lambda: prepared(job).keys() >= set(ranks) or job.process.poll() is not None, f"spares for {ranks}", LIMIT)
    assert job.process.poll() is None, job.output
    return prepared(job)


@pytest.mark.parametrize("mode", ["ddp", "buffers", "hsdp", "tp"])
def test_each_takes_its_rank(mode: str, start: Start, reference: References) -> None:
    """In a step, and a second one in the middle of a recovery; a rank moves to the one that is prepared for it."""
    faults = (
        GATE,
        Fault("first collective of backward", rank=2, step=5),
        Fault("forward", rank=0, step=7),
        Fault("donate", rank=3, step=7),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults, spares=5, flags=ALL)
    ready = when_prepared(job, *RANKS)
    job.command("migrate", "--rank", "1")
    wait_until(lambda: job.ask("status")["state"] != "training", "all are asked to pause", LIMIT)  # else the loss may come first
    job.open_gate(GATE)
    assert_identical(job, undisturbed)
    moved, *lost = job.incidents()
    assert moved["planned"] and moved["ranks"][0]["new_worker"] == ready[1]
    assert [part["rank"] for incident in lost for part in incident["ranks"]] == [2, 0, 3]
    for incident in lost:
        for part in incident["ranks"]:
            assert part["new_worker"] == ready[part["rank"]]
    for incident in (moved, *lost):
        assert incident["steps_lost"] == 0 and incident["digests_verified"] > 0 and incident["seconds"] is not None


def test_the_same_rank_again(start: Start, reference: References) -> None:
    """After a loss another spare is prepared for the rank, from the records of buddies, one of which is a newcomer."""
    again = Fault("forward", rank=2, step=9, action="gate")
    faults = (GATE, Fault("forward", rank=1, step=4), Fault("forward", rank=2, step=6), again, Fault("vote", rank=2, step=11))
    undisturbed = reference("ddp")
    job = start("ddp", *faults, spares=5, flags=ALL)
    first = when_prepared(job, *RANKS)
    job.open_gate(GATE)
    job.wait_for_fault(again)
    wait_until(lambda: prepared(job).keys() == set(RANKS), "all are prepared again", LIMIT)
    second = prepared(job)
    job.open_gate(again)
    assert_identical(job, undisturbed)
    incidents = assert_incidents(job, redone(1, in_step(4)), redone(2, in_step(6)), redone(2, in_step(11)))
    assert [incident["new_worker"] for incident in incidents] == [first[1], first[2], second[2]]
    assert first[2] != second[2]


def test_prepared_for_another_rank(start: Start, reference: References) -> None:
    """The only spare is prepared for rank 0. Rank 2 is lost, so a fresh one is started in its place."""
    faults = (GATE, Fault("vote copies", rank=2, step=6))
    undisturbed = reference("ddp")
    job = start("ddp", *faults, spares=1, flags=("--prepare", "1"))
    ready = when_prepared(job, 0)
    job.open_gate(GATE)
    assert_identical(job, undisturbed, unlogged={(2, "step 7")})
    (incident,) = assert_incidents(job, either(2, in_step(6)))
    assert incident["new_worker"] not in ready.values()
    assert has(job.output, drills.STARTED_OVER, spare=ready[0], node="node0", rank=0)


def test_a_set_up_that_fails_ahead_costs_nothing(start: Start, reference: References) -> None:
    """The script raises in one, and another is killed: others are prepared in their place, and training hears nothing of it."""
    failing = Fault("newcomer in its set-up", rank=0, action="exception")
    killed = Fault("newcomer in its set-up", rank=1)
    faults = (GATE, failing, killed, Fault("forward", rank=1, step=5))
    undisturbed = reference("ddp")
    job = start("ddp", *faults, spares=4, flags=ALL)
    ready = when_prepared(job, *RANKS)
    job.open_gate(GATE)
    assert_identical(job, undisturbed)
    (incident,) = assert_incidents(job, redone(1, in_step(5)))
    assert incident["new_worker"] == ready[1]
    assert has(job.output, drills.NOT_PREPARED, rank=0)


def _wait_for_another(job: Job, program: str, pid: int) -> None:
    wait_until(lambda: job.mark.pids_running(program) not in ([], [pid]), f"another {program}", LIMIT)


def test_the_agent_and_the_orchestrator_are_killed_meanwhile(start: Start, reference: References) -> None:
    """What spares are prepared for is in the journal, and a new agent hears it from them."""
    faults = (GATE, Fault("first collective of backward", rank=3, step=5))
    undisturbed = reference("ddp")
    job = start("ddp", *faults, spares=4, flags=ALL)
    ready = when_prepared(job, *RANKS)
    before = job.ask("status")
    for program in ("-m understudy.orchestrator", "-m understudy.agent"):
        (pid,) = job.mark.pids_running(program)
        send(pid, signal.SIGKILL)
        _wait_for_another(job, program, pid)
    wait_until(lambda: prepared(job) == ready, "they are known again", LIMIT)
    job.open_gate(GATE)
    assert_identical(job, undisturbed)
    (incident,) = assert_incidents(job, redone(3, in_step(5)))
    assert incident["new_worker"] == ready[3]
    assert {spare["pid"] for spare in before["spares"]} >= {rank["pid"] for rank in job.ask("status")["ranks"] if rank["rank"] == 3}
