"""A device fails under a rank: every kind of error, at every point of a step, of a recovery and of a move, in real jobs.

The devices of these jobs exist in the environment only (CUDA_VISIBLE_DEVICES), and the errors are raised as torch raises them
(`understudy.chaos.faults.device`): the reaction of a worker, its agent and the orchestrator is real.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest
from tests.faults.harness import LIMIT, Fault, Job, Reference, assert_identical, assert_survivors_stayed
from tests.faults.modes import every_mode
from tests.integration.processes import wait_until
from tests.message_texts import codes, has
from tests.outcomes import shows

from understudy.chaos.faults.device import KINDS
from understudy.common.names import JOURNAL
from understudy.core.machine import Machine
from understudy.core.state import DEVICE
from understudy.messages import losses, moves
from understudy.orchestrator import journal

Start = Callable[..., Job]
References = Callable[..., Reference]
DEVICES = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(12)))}


def fails(point: str, rank: int, step: int | None = None, kind: str = "ecc") -> Fault:
    return Fault(point, rank, step, "device_error", values=(("kind", kind),))


def tainted(job: Job) -> set[str]:
    """Parts of the node that are tainted for a device error."""
    return {taint["part"] for taint in job.ask("status")["tainted"] if taint["source"] == DEVICE}


def tainted_at_end(job: Job) -> set[str]:
    """The same of a job that has ended, by its journal."""
    (recorded,) = journal.read_all(job.run_dir / JOURNAL).values()
    machine = Machine(recorded.settings.spec, recorded.settings.timeouts)
    for now, event in recorded.events:
        machine.handle(event, now)
    nodes = machine.state.nodes.values()
    return {part for node in nodes for source, part in (*node.taints, *node.device_taints) if source == DEVICE}


@shows(
    "an error of the hardware, the driver or a disk; or one that the script may have caused",
    "the rank is replaced, its device tainted; for a disk its node",
)
@every_mode
def test_each_kind_at_each_point_of_a_step(mode: str, start: Start, reference: References) -> None:
    """In the forward, in a collective of the backward, before the vote, in it, after it, in the optimizer, between steps and in the
    evaluation: the rank is replaced as after a kill, and the result is that of the undisturbed run.
    """
    points = (
        ("forward", 1),
        ("first collective of backward", 2),
        ("backward", 3),
        ("between backward and vote", 0),
        ("vote copies", 1),
        ("apply", 2),
        ("evaluation", 3),
    )
    faults = tuple(fails(point, rank, 1 + 2 * n, kind) for n, ((point, rank), kind) in enumerate(zip(points, KINDS, strict=True)))
    undisturbed = reference(mode)
    job = start(mode, *faults, variables=DEVICES)
    after_vote = {(1, "step 10"), (2, "step 12")}
    assert_identical(job, undisturbed, unlogged=after_vote, borrowed={(2, "step 12"), (3, "step 15")})
    incidents = job.incidents()
    assert [part["rank"] for incident in incidents for part in incident["ranks"]] == [rank for _, rank in points]
    assert {part["cause"] for incident in incidents for part in incident["ranks"]} == {"device"}
    assert all(incident["steps_lost"] == 0 and incident["digests_verified"] > 0 for incident in incidents)
    assert_survivors_stayed(job, {0: 1, 1: 2, 2: 2, 3: 2})


@shows(
    "device errors of two ranks of a node within a step, on different devices, unless they are the script's fault (rows below)",
    "the node is tainted, too: its driver or power is suspect",
)
def test_two_ranks_a_donor_and_newcomers(start: Start, reference: References) -> None:
    """Two in one step, which speaks against the node; a donor while it gives its state; a newcomer in its set-up, in its transfer and
    verified."""
    faults = (
        fails("between backward and vote", 0, 2),
        fails("between backward and vote", 3, 2, "unavailable"),
        fails("forward", 1, 5),
        fails("donate", 3, 5, "launch-failure"),
        fails("forward", 2, 8),
        fails("newcomer in its set-up", 2, None, "illegal-access"),
        fails("forward", 1, 11, "disk"),
        fails("transfer", 1, None, "unavailable"),
    )
    undisturbed = reference("ddp")
    job = start("ddp", *faults, variables=DEVICES)
    assert_identical(job, undisturbed)
    incidents = job.incidents()
    assert sorted(part["rank"] for incident in incidents for part in incident["ranks"]) == [0, 1, 1, 1, 2, 2, 3, 3]
    assert {part["cause"] for incident in incidents for part in incident["ranks"]} == {"device"}
    assert losses.SEVERAL_DEVICES.code in codes(job.output)
    assert_survivors_stayed(job, {0: 1, 1: 3, 2: 2, 3: 2})


@shows("an error of the hardware, the driver or a disk; or one that the script may have caused")
def test_the_newcomer_goes_to_another_device(start: Start) -> None:
    gate = Fault("forward", 0, 6, action="gate")
    job = start("ddp", fails("forward", 1, 3), gate, spares=1, variables=DEVICES)
    job.wait_for_fault(gate)
    assert tainted(job) == {"gpu1"}
    assert (job.folder / "local-1.txt").read_text().split() == ["1", "4"], (
        "the first that is free, and not the one of the device that failed"
    )
    job.open_gate(gate)
    assert job.wait() == 0, job.output[-6000:]


@shows(
    "the same error of the same rank at the same transaction, on another device",
    "the script's fault: the job ends with its traceback, both devices are trusted again",
)
@pytest.mark.parametrize("kind", ["ecc", "illegal-access"])
def test_the_same_error_on_the_spares_device_is_the_scripts(kind: str, start: Start) -> None:
    """Two devices are used at most, and the job ends with the script's traceback."""
    again = (fails("forward", 1, 5, kind), fails("forward", 1, 5, kind))
    job = start("ddp", *again, spares=4, variables=DEVICES)
    assert job.wait() == 1, job.output[-6000:]
    assert losses.SAME_ON_ANOTHER_DEVICE.code in codes(job.output)
    assert "in device_error" in job.output and "torch.AcceleratorError" in job.output
    assert len(job.pids(1)) == 2, "the rank's first worker, and one spare"
    assert tainted_at_end(job) == set()


@shows(
    "a device error in the rank that a migration is about to move",
    "a loss: the newcomer takes over the rank, and gets its state from a replica",
)
def test_the_rank_that_moves_loses_its_device(start: Start, reference: References) -> None:
    """As it is about to give its state: the newcomer that has set up takes the rank, with the state of a replica."""
    gate, fault = Fault("forward", 0, 4, action="gate"), fails("donate", 2)
    undisturbed = reference("ddp")
    job = start("ddp", gate, fault, spares=2, variables=DEVICES)
    job.wait_for_fault(gate)
    job.command("migrate", "--rank", "2")
    wait_until(lambda: has(job.output, moves.MIGRATES, rank=2), "the migration begins", LIMIT)
    job.open_gate(gate)
    assert_identical(job, undisturbed, borrowed={(2, line) for line in ("step 5", "step 6", "evaluation 6", "step 7")})
    (incident,) = job.incidents()
    assert {(part["rank"], part["cause"]) for part in incident["ranks"]} >= {(2, "device")}
    assert_survivors_stayed(job, {2: 1})


@shows(
    "a device error after the last step, before the script has ended",
    "a loss: the newcomer takes over the rank and reaches the same end",
)
def test_at_the_end_of_the_script(start: Start, reference: References) -> None:
    """After the last step: the others stay as donors until every rank has ended, and the newcomer writes the rank's files."""
    undisturbed = reference("ddp")
    job = start("ddp", fails("after the loop", 2), variables=DEVICES)
    assert_identical(job, undisturbed, unlogged={(2, "step 12"), (2, "evaluation 12")})
    (incident,) = job.incidents()
    assert [(part["rank"], part["cause"]) for part in incident["ranks"]] == [(2, "device")]


@shows("a device error in a spare that is being prepared, or in a drill")
def test_in_the_spare_of_a_drill(start: Start, reference: References) -> None:
    """It was on the rank's device, which gets no newcomers any more: the rank stays, and its next drill, on another device, proves it."""
    gates = [Fault("forward", 0, step, action="gate") for step in (3, 6)]
    undisturbed = reference("ddp")
    job = start("ddp", *gates, fails("rehearsal first", 1), spares=1, variables=DEVICES)
    for gate, verdict in zip(gates, ("broken", "same"), strict=True):
        job.wait_for_fault(gate)
        wait_until(lambda: [spare["state"] for spare in job.ask("status")["spares"]] == ["warm"], "a warm spare", LIMIT)
        job.command("drill", "--rank", "1")
        wait_until(lambda: latest(job)["stage"] == "computing", "the spare has set up", LIMIT)
        job.open_gate(gate)
        wait_until(lambda: latest(job)["verdict"], "the drill's verdict", LIMIT)
        assert latest(job)["verdict"] == verdict
        assert tainted(job) == {"gpu1"}
    assert_identical(job, undisturbed)
    assert job.incidents() == []
    assert (job.folder / "local-1.txt").read_text().split() == ["1", "1", "4"], "the rank, and the spares of its drills"


def latest(job: Job) -> dict[str, Any]:
    """The newest drill."""
    return max(job.ask("status")["drills"], key=itemgetter("number"))
