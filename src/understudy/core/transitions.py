"""The allowed transitions of workers and jobs, and which events count in which state.

Theory
======

There are two kinds of state machines, one for the job and one for each worker. The tables do not define *why* something changes: the other
modules of `core` decide that. They define which changes are possible at all.

A worker has a rank from WARM on, if ever, and keeps it for life; it never comes back from LOST:

    STARTING ----> WARM ----> MEMBER <-----------> LEAVING     its rank moves, or stays after all
       |            |           ^  |                  |
       |            +------> NEWCOMER                 |
       |            +<-----> DRILLING                 |    a spare in a drill; back: a loss came before it had begun
       |            |           |  |                  |
       +------------+-----------+--+------------------+---> RELEASED ----> LOST    told to exit, and gone
       +------------+-----------+--+------------------+-----------------> LOST     gone, or fenced

The job. A phase may follow itself if something new begins in it: a second loss during QUIESCING begins the next generation, and training
that begins is TRAINING until its first commit and after it:

    FORMING ----> TRAINING ----> QUIESCING ----> RESUMING ----> TRAINING
                  TRAINING, QUIESCING, RESUMING ----> FORMING     nothing was done yet: all ranks start from scratch
                                                RESUMING ----> QUIESCING     another loss
    any of them ----> ENDED

Ignored events. Workers repeat themselves after every reconnect, and an event may be late: from a worker that is fenced by now, or of a
generation that is over. Such an event changes nothing. `SPEAKERS` and `DURING` set in which state of its worker, and in which phase, a kind
of event counts; handlers check what depends on more than that (the generation, a timer, whether it is a repeat). Ignored events are counted
in `JobState.refused` by kind and reason. They are never an error, because they come from outside, and the counts affect no decision. A
steady number of them is normal; a kind that grows without end shows a process that is not heard.

A transition that the first two tables do not contain is ignored as well, and counted (`RefusalReason.TRANSITION`). No event can cause one;
the tests search for it, and such a count in a real job is a bug in this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from understudy.core import events


class Phase(StrEnum):
    """The phase of the job as a whole."""

    FORMING = "forming"  # nodes join, workers warm, ranks are not assigned yet
    TRAINING = "training"
    QUIESCING = "quiescing"  # a generation is over; survivors go to their positions, newcomers set up
    RESUMING = "resuming"  # Recover was sent; not every rank has committed in the new generation
    ENDED = "ended"


class WorkerState(StrEnum):
    """The state of a worker in the job."""

    STARTING = "starting"  # not warm yet
    WARM = "warm"  # holds no rank
    DRILLING = "rehearsing"  # computes a step in parallel with a rank, to compare the results
    NEWCOMER = "newcomer"  # took a rank in the middle of the job; its state is not verified yet
    MEMBER = "training"  # holds a rank
    LEAVING = "leaving"  # healthy; its rank moves to a newcomer that is not verified yet
    RELEASED = "released"  # was told to exit
    LOST = "lost"


class RefusalReason(StrEnum):
    """Why an event is ignored."""

    UNKNOWN = "unknown"  # the worker or node is unknown
    STATE = "state"  # its worker is in another state than the event requires: usually fenced
    PHASE = "phase"  # it has no meaning in this phase of the job: usually after its end
    GENERATION = "generation"  # it names a generation that is over, or in which its worker takes no part
    OVER = "over"  # the timer, migration or incident to which it belongs is over, or never existed
    AGAIN = "again"  # it is a repeat
    LIMIT = "limit"  # the limit of its kind is reached
    TRANSITION = "transition"  # a bug in `core`: no table contains this transition


STARTING, WARM, DRILLING, NEWCOMER, MEMBER, LEAVING, RELEASED, LOST = WorkerState
FORMING, TRAINING, QUIESCING, RESUMING, ENDED = Phase

WORKER: Mapping[WorkerState, frozenset[WorkerState]] = {
    STARTING: frozenset({WARM, RELEASED, LOST}),
    WARM: frozenset({MEMBER, NEWCOMER, DRILLING, RELEASED, LOST}),
    DRILLING: frozenset({WARM, RELEASED, LOST}),
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
    # All other events are accepted from any worker: `WorkerStarted`, whose worker may be unknown and is then ended, and `Notice`.
    events.StartRefused: frozenset({STARTING}),
    events.WorkerWarm: _THERE,  # it may have a rank from an orchestrator that was killed
    events.WorkerLost: _THERE,
    events.ScriptFailed: _THERE - {RELEASED},
    events.DeviceFailed: _THERE - {RELEASED},
    events.UsesDevice: _HAD_A_RANK - {RELEASED},
    events.Prepared: frozenset({WARM, DRILLING}),
    events.Drilled: frozenset({DRILLING}),
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
    events.CommunicationBroken: _HAD_A_RANK,  # not a prepared spare, which takes no part in training
    events.PhaseDone: _HAD_A_RANK,
    events.Uncovered: _HAD_A_RANK,
    events.Committed: _HAD_A_RANK,
}

_ALWAYS = frozenset(Phase)
_LIVE = _ALWAYS - {ENDED}

DURING: Mapping[type[Any], frozenset[Phase]] = {  # all others: until the job has ended
    events.NodeTainted: _ALWAYS,
    events.IncidentGraded: _ALWAYS,  # the last incident may end with the job
    events.CommunicationBroken: frozenset({TRAINING, RESUMING}),
    events.ReplicasDiffer: frozenset({TRAINING, RESUMING, QUIESCING}),
    events.RedoDiffers: frozenset({RESUMING, QUIESCING}),
    events.SectionFailed: frozenset({TRAINING, RESUMING, QUIESCING}),
}


def outlives(kind: type[Any], phase: Phase) -> bool:
    """Return whether an event of this kind can have a meaning in this phase of the job."""
    return phase in DURING.get(kind, _LIVE)


def refusal(kind: type[Any], speaker: WorkerState | None, phase: Phase) -> RefusalReason | None:
    """Return why an event of this kind is ignored according to the tables; None: its handler decides. `speaker`: None if it is unknown."""
    if not outlives(kind, phase):
        return RefusalReason.PHASE
    speakers = SPEAKERS.get(kind)
    if speakers is None or speaker in speakers:
        return None
    return RefusalReason.UNKNOWN if speaker is None else RefusalReason.STATE
