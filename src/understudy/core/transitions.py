"""What may follow what: the states of a worker, the phases of a job, and who may say what.

Theory
======

Three tables, which a person can read. The machine's chapters decide *when* something changes; what may change at all stands here.

- `WORKER`: the states that may follow a state. `JobState.become` is the only way from one to the next.
- `PHASE`: the same of a job's phases, through `JobState.enter`. ENDED follows everything and is followed by nothing.
- `SAYS`: of whom an event is listened to, by what the worker is at that moment. An event about no worker is not in it.

What is not in the tables is refused: nothing changes, and it is counted in `JobState.refused` under what it was and why. So is an event
that a chapter refuses because of what else it knows (its generation is over, its question is answered). None of that is an error by
itself: events may come twice and in any order, and agents repeat themselves after a reconnect. But a number that grows without any
reconnect shows a worker, an agent or a machine that means something else than this one.

A transition that is refused is another matter: the machine itself has asked for it, so it is a bug here. The walks and the model, which
meet far more orders of events than any job, check that there is none (`tests/unit/test_core_machine.py`, `tests/model`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from understudy.core import events


class Phase(StrEnum):
    """Where the job as a whole is."""

    FORMING = "forming"  # nodes join, workers warm, ranks are not assigned yet
    TRAINING = "training"
    QUIESCING = "quiescing"  # a generation is over; survivors go to their positions, newcomers set up
    RESUMING = "resuming"  # Recover was sent; not every rank has committed in the new generation
    ENDED = "ended"


class WorkerState(StrEnum):
    """What a worker is to the job."""

    STARTING = "starting"  # not warm yet
    WARM = "warm"  # holds no rank
    NEWCOMER = "newcomer"  # took a rank in the middle of the job; its state is not verified yet
    MEMBER = "training"  # holds a rank
    LEAVING = "leaving"  # healthy; its rank moves to a newcomer that is not verified yet
    RELEASED = "released"  # told to exit
    LOST = "lost"


STARTING, WARM, NEWCOMER = WorkerState.STARTING, WorkerState.WARM, WorkerState.NEWCOMER
MEMBER, LEAVING, RELEASED, LOST = WorkerState.MEMBER, WorkerState.LEAVING, WorkerState.RELEASED, WorkerState.LOST

WORKER: dict[WorkerState, frozenset[WorkerState]] = {
    STARTING: frozenset({WARM, RELEASED, LOST}),
    WARM: frozenset({MEMBER, NEWCOMER, RELEASED, LOST}),  # it gets a rank when ranks are given out, or in the middle of the job
    NEWCOMER: frozenset({MEMBER, RELEASED, LOST}),
    MEMBER: frozenset({LEAVING, RELEASED, LOST}),
    LEAVING: frozenset({MEMBER, RELEASED, LOST}),  # a member again if its migration is called off
    RELEASED: frozenset({LOST}),
    LOST: frozenset(),
}

PHASE: dict[Phase, frozenset[Phase]] = {
    Phase.FORMING: frozenset({Phase.TRAINING, Phase.ENDED}),
    Phase.TRAINING: frozenset({Phase.TRAINING, Phase.QUIESCING, Phase.FORMING, Phase.ENDED}),  # settled; a loss; anew: nothing was done
    Phase.QUIESCING: frozenset({Phase.QUIESCING, Phase.RESUMING, Phase.FORMING, Phase.ENDED}),  # another loss
    Phase.RESUMING: frozenset({Phase.TRAINING, Phase.QUIESCING, Phase.FORMING, Phase.ENDED}),
    Phase.ENDED: frozenset(),
}

_THERE = frozenset(WorkerState) - {LOST}

SAYS: dict[type[Any], frozenset[WorkerState]] = {
    events.StartRefused: frozenset({STARTING}),
    events.WorkerWarm: _THERE,  # again, when its agent was started again: then only its rank is looked at
    events.WorkerLost: _THERE,
    events.CommunicationBroken: _THERE,
    events.Quiesced: _THERE,
    events.NewcomerReady: frozenset({NEWCOMER}),
    events.Prepared: frozenset({WARM}),
    events.PhaseDone: _THERE,
    events.Verified: frozenset({NEWCOMER}),
    events.VerifyFailed: frozenset({NEWCOMER}),
    events.Uncovered: _THERE,
    events.ReplicasDiffer: frozenset({MEMBER, LEAVING}),
    events.Committed: _THERE,
    events.ScriptFailed: _THERE - {RELEASED},
    events.Finished: frozenset({MEMBER, NEWCOMER}),
}
