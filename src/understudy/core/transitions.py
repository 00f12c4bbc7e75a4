"""What a worker and a job may become, and whose words mean something meanwhile: tables to be read by people, and one place that asks them.

Theory
======

Two kinds of small machines run here, one for the job and one for each worker. Neither table says *why* something changes: that is what
the other modules of `core` decide. They say what can follow what at all, so that whoever reads a decision knows what cannot have been.

A worker. It has a rank from WARM on, if ever, and that one for life; it never comes back from LOST:

    STARTING ----> WARM ----> MEMBER <-----------> LEAVING     its rank moves, or stays after all
       |            |           ^  |                  |
       |            +------> NEWCOMER                 |
       |            +<-----> REHEARSING               |    a spare in a drill; back: a loss came before it had begun
       |            |           |  |                  |
       +------------+-----------+--+------------------+---> RELEASED ----> LOST    told to go, and gone
       +------------+-----------+--+------------------+-----------------> LOST     gone, or fenced

The job. Staying is in the table, too, where something new begins in the same phase: a second loss while everybody comes to rest is the
next generation, and training that begins is training from its first commit on:

    FORMING ----> TRAINING ----> QUIESCING ----> RESUMING ----> TRAINING
                  TRAINING, QUIESCING, RESUMING ----> FORMING     nothing was done yet: all ranks start anew
                                                RESUMING ----> QUIESCING     another loss
    any of them ----> ENDED

Words. Workers repeat themselves after every reconnect, and what they say may be late: of a worker that is fenced by now, of a generation
that is over. Such a word changes nothing. `SPEAKERS` and `DURING` say in which state of its worker, and in which phase, a kind of event
means something; what depends on more than that (the generation, a timer, whether it was said before) the handlers see. Either way it is
*refused*: counted in `JobState.refused` by its kind and by why, and never an error, because it came from outside. The counts take no part
in any decision. Many are as it should be. What they are good for: a kind that grows and grows is somebody who is not heard.

A step that the first two tables do not know is ignored as well: nothing changes, and it is counted (`RefusalReason.TRANSITION`). No event can
lead to one; the tests walk for it, and a count of them in a real job is a bug in here.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    REHEARSING = "rehearsing"  # computes a step beside a rank, to see whether it comes to the same
    NEWCOMER = "newcomer"  # took a rank in the middle of the job; its state is not verified yet
    MEMBER = "training"  # holds a rank
    LEAVING = "leaving"  # healthy; its rank moves to a newcomer that is not verified yet
    RELEASED = "released"  # told to exit
    LOST = "lost"


class RefusalReason(StrEnum):
    """Why something is refused."""

    UNKNOWN = "unknown"  # nobody has ever heard of this worker or node
    STATE = "state"  # its worker is something else than what it speaks as: fenced, as a rule
    PHASE = "phase"  # it means nothing in this phase of the job: after its end, as a rule
    GENERATION = "generation"  # it names one that is over, or that its worker takes no part in
    OVER = "over"  # the timer, migration or incident to which it belongs is over, or never was
    AGAIN = "again"  # it was said before
    LIMIT = "limit"  # there are enough of its kind
    TRANSITION = "transition"  # a bug in `core`: no table knows this step


STARTING, WARM, REHEARSING, NEWCOMER, MEMBER, LEAVING, RELEASED, LOST = WorkerState
FORMING, TRAINING, QUIESCING, RESUMING, ENDED = Phase

WORKER: Mapping[WorkerState, frozenset[WorkerState]] = {
    STARTING: frozenset({WARM, RELEASED, LOST}),
    WARM: frozenset({MEMBER, NEWCOMER, REHEARSING, RELEASED, LOST}),
    REHEARSING: frozenset({WARM, RELEASED, LOST}),
    NEWCOMER: frozenset({MEMBER, RELEASED, LOST}),
    MEMBER: frozenset({LEAVING, RELEASED, LOST}),
    LEAVING: frozenset({MEMBER, RELEASED, LOST}),
    RELEASED: frozenset({LOST}),
    LOST: frozenset(),
}

JOB: Mapping[Phase, frozenset[Phase]] = {
    FORMING: frozenset({TRAINING, ENDED}),
    TRAINING: frozenset({TRAINING, QUIESCING, FORMING, ENDED}),
    QUIESCING: frozenset({QUIESCING, RESUMING, FORMING, ENDED}),
    RESUMING: frozenset({TRAINING, QUIESCING, FORMING, ENDED}),
    ENDED: frozenset(),
}

HAS_STATE = frozenset({MEMBER, LEAVING})
_HAD_A_RANK = frozenset({NEWCOMER, MEMBER, LEAVING, RELEASED})
_THERE = frozenset(WorkerState) - {LOST}

SPEAKERS: Mapping[type[Any], frozenset[WorkerState]] = {
    # Anybody may say the rest: `WorkerStarted`, whose worker may be unknown and is ended then, and `Notice`.
    events.StartRefused: frozenset({STARTING}),
    events.WorkerWarm: _THERE,  # it may have a rank from an orchestrator that was killed
    events.WorkerLost: _THERE,
    events.ScriptFailed: _THERE - {RELEASED},
    events.DeviceFailed: _THERE - {RELEASED},
    events.UsesDevice: _HAD_A_RANK - {RELEASED},
    events.Prepared: frozenset({WARM, REHEARSING}),
    events.Drilled: frozenset({REHEARSING}),
    events.DrillBroken: frozenset({MEMBER, LEAVING}),
    events.Registered: frozenset({MEMBER}),
    events.StateListed: frozenset({MEMBER}),
    events.GroupsListed: frozenset({MEMBER}),
    events.NewcomerReady: frozenset({NEWCOMER}),
    events.Verified: frozenset({NEWCOMER}),
    events.VerifyFailed: frozenset({NEWCOMER}),
    events.Finished: frozenset({NEWCOMER, MEMBER}),
    events.Quiesced: HAS_STATE,
    events.ReplicasDiffer: HAS_STATE,
    events.RedoDiffers: HAS_STATE,
    events.SectionFailed: HAS_STATE,
    events.CommunicationBroken: _HAD_A_RANK,  # not a spare that is prepared: training has nothing to do with it
    events.PhaseDone: _HAD_A_RANK,
    events.Uncovered: _HAD_A_RANK,
    events.Committed: _HAD_A_RANK,
}

_ALWAYS = frozenset(Phase)
_LIVE = _ALWAYS - {ENDED}

DURING: Mapping[type[Any], frozenset[Phase]] = {  # all others: as long as the job has not ended
    events.NodeTainted: _ALWAYS,
    events.IncidentGraded: _ALWAYS,  # the last incident may end with the job
    events.CommunicationBroken: frozenset({TRAINING, RESUMING}),
    events.ReplicasDiffer: frozenset({TRAINING, RESUMING, QUIESCING}),
    events.RedoDiffers: frozenset({RESUMING, QUIESCING}),
    events.SectionFailed: frozenset({TRAINING, RESUMING, QUIESCING}),
}


def outlives(kind: type[Any], phase: Phase) -> bool:
    """Whether an event of this kind can mean anything in this phase of the job."""
    return phase in DURING.get(kind, _LIVE)


def refusal(kind: type[Any], speaker: WorkerState | None, phase: Phase) -> RefusalReason | None:
    """Why an event of this kind means nothing now, as far as the tables know; None: its handler sees. `speaker`: None, nobody knows it."""
    if not outlives(kind, phase):
        return RefusalReason.PHASE
    speakers = SPEAKERS.get(kind)
    if speakers is None or speaker in speakers:
        return None
    return RefusalReason.UNKNOWN if speaker is None else RefusalReason.STATE
