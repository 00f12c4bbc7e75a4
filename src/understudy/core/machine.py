"""The job's state machine: events in, commands out. No I/O, no clock, no torch, no third-party imports.

Theory
======

A job has a fixed number of ranks, and at any time one worker holds each. A *generation* is one such assignment together with the
communicators made for it. The machine has five phases:

    FORMING ----> TRAINING <------------------------------+
       ^              | a holder is lost, or a boundary   | every rank has committed
       |              v is wanted                         | in the new generation
       +--------- QUIESCING ------- Recover ---------> RESUMING
     start again      ^                                   |
     (nothing done)   +------- another loss --------------+           ENDED from anywhere

- Any loss of a holder has the same answer: the generation ends, and the next number begins. Abort goes to the survivors, and at the same
  time a spare takes the vacant rank, so that it sets up while the survivors quiesce.
- When all survivors have reported their positions, `commit.decide` makes the one decision, and Recover carries it to all.
- A second loss, at any point, is handled in the same way: the next number begins. The job does not wait for newcomers that are not
  verified; they keep their set-up.
- A planned migration is the same change of generation, with a Pause at a boundary in place of the Abort, and with the old worker as a
  donor.

Invariants
==========

- The generation only grows. An event of a generation that is over is ignored, with two exceptions that stay true: a newcomer that reports
  that it is verified, and a script that has ended.
- A worker that is lost is fenced in the same call (KillWorker), before its rank is assigned again. No two workers that are not lost hold
  the same rank, except that during a migration the old one is marked as leaving.
- Every event may arrive twice, and in any order: agents repeat themselves after a reconnect. Nothing is counted twice.
- Events without a meaning are ignored and counted (`JobState.refused`), and so are transitions that no table contains; no event from
  outside raises an exception.
- The same events, with the same times, lead to the same state: the journal is the state.

Read on in `transitions.py` (allowed transitions, and which events count when), `state.py` (the state), `workers.py`, `forming.py`,
`loss.py`, `device_faults.py`, `devices.py`, `quiesce.py`, `resume.py`, `migration.py`, `taints.py`, `drain.py`, `admission.py`, `home.py`,
`preparation.py`, `floating.py`, `drill.py`, `dispute.py`, `grades.py`, `topology.py`: one chapter each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from understudy.core import (
    device_faults,
    devices,
    dispute,
    drain,
    drill,
    events,
    grades,
    loss,
    migration,
    preparation,
    proofs,
    quiesce,
    resume,
    skipping,
    taints,
    topology,
    workers,
)
from understudy.core.commands import Command
from understudy.core.model import Incident, JobSpec, LossCause, Timeouts
from understudy.core.state import JobState
from understudy.core.transitions import Phase, RefusalReason, outlives, refusal
from understudy.messages import forming, losses
from understudy.messages.base import code_of


def _script_failed(state: JobState, event: events.ScriptFailed) -> None:
    """End the job because the user's code raised. This is not a hardware fault: it uses no spares, and losses that follow from it do not
    count.
    """
    worker = state.workers[event.worker]
    if drill.failed(state, worker, event.summary):
        return
    if worker.rank < 0 <= event.rank:
        preparation.failed(state, worker, event.rank, event.summary)
        return
    if worker.prepare is not None and worker.assign is not None and worker.last_seen_generation < worker.assign.generation:
        # It was still setting up in advance when it was given the rank.
        loss.lose(state, [loss.Loss(worker, LossCause.EXITED, event.summary, state.now)])
        return
    report = f"{event.summary}\n{event.traceback}".rstrip()
    if event.rank >= 0:
        why = losses.SCRIPT_FAILED(rank=event.rank, worker=event.worker, node=worker.node, step=event.step, report=report)
    else:
        why = losses.WORKER_FAILED(worker=event.worker, step=event.step, report=report)
    state.end(event.exit_code or 1, why)


def _stop_asked(state: JobState, event: events.StopAsked) -> None:
    state.end(event.exit_code, losses.STOPPED(reason=event.reason))


MOST_NOTICES = 200
MOST_EVIDENCE = 200


def _is_first(state: JobState, text: str) -> bool:
    """Return whether no notice has the code of this one."""
    code = code_of(text)
    return not any(code in notice for notice in state.notices)


def _notice(state: JobState, event: events.Notice) -> None:
    text = f"rank {event.rank}: {event.text}" if event.rank >= 0 else event.text
    known = {*state.notices, *(notice.partition(": ")[2] for notice in state.notices)}
    full = len(state.notices) >= MOST_NOTICES and not (grades.is_warning(event.text) and _is_first(state, event.text))
    if event.text in known or full:  # other ranks need not repeat the notice of one rank
        state.ignore(event, RefusalReason.AGAIN if event.text in known else RefusalReason.LIMIT)
        return
    state.notices.append(text)
    state.report(text)


def _recorded(state: JobState, event: events.IncidentGraded) -> None:
    """Change nothing: the machine itself has made this event."""


def _observed(state: JobState, event: events.Observed) -> None:
    key = event.detector, event.name, event.kind, event.part
    state.evidence.pop(key, None)
    if len(state.evidence) >= MOST_EVIDENCE:
        del state.evidence[next(iter(state.evidence))]
    state.evidence[key] = event


_HANDLERS: dict[type[Any], Callable[[JobState, Any], None]] = {
    events.NodeJoined: loss.node_joined,
    events.NodesLost: loss.nodes_lost,
    events.ClaimEnded: loss.claim_ended,
    events.WorkerStarted: workers.worker_started,
    events.StartRefused: workers.start_refused,
    events.WorkerWarm: loss.worker_warm,
    events.WorkerLost: loss.worker_lost,
    events.CommunicationBroken: loss.communication_broken,
    events.Quiesced: quiesce.quiesced,
    events.NewcomerReady: migration.newcomer_ready,
    events.Prepared: preparation.prepared,
    events.Drilled: drill.drilled,
    events.DrillBroken: drill.broken,
    events.Registered: proofs.registered,
    events.StateListed: proofs.listed,
    events.GroupsListed: topology.listed,
    events.PhaseDone: resume.phase_done,
    events.Verified: resume.verified,
    events.VerifyFailed: loss.verify_failed,
    events.Uncovered: resume.uncovered,
    events.ReplicasDiffer: dispute.replicas_differ,
    events.RedoDiffers: dispute.redo_differs,
    events.SectionFailed: skipping.section_failed,
    events.Committed: resume.committed,
    events.ScriptFailed: _script_failed,
    events.UsesDevice: devices.uses,
    events.DeviceFailed: device_faults.device_failed,
    events.Finished: resume.finished,
    events.Notice: _notice,
    events.MigrationAsked: migration.asked,
    events.DrillAsked: drill.asked,
    events.Believed: dispute.believed,
    events.NodeTainted: taints.node_tainted,
    events.NodeChecked: taints.node_checked,
    events.NodeReleased: drain.released,
    events.NodeLabelled: topology.labelled,
    events.Observed: _observed,
    events.IncidentGraded: _recorded,
    events.StopAsked: _stop_asked,
    events.Expired: loss.expired,
}


class Machine:
    """The state machine of one job. Not thread-safe: one owner calls `handle`, for one event at a time."""

    def __init__(self, spec: JobSpec, timeouts: Timeouts) -> None:
        if spec.world_size < 1 or spec.world_size != spec.nodes * spec.workers_per_node:
            figures = {"world_size": spec.world_size, "nodes": spec.nodes, "workers_per_node": spec.workers_per_node}
            raise ValueError(forming.WORLD_SIZE(**figures))
        if spec.spares < 0:
            raise ValueError(forming.SPARES_NEGATIVE(spares=spec.spares))
        if not 0 <= spec.spare_nodes * spec.workers_per_node <= spec.spares:
            figures = {"spare_nodes": spec.spare_nodes, "workers_per_node": spec.workers_per_node, "spares": spec.spares}
            raise ValueError(forming.SPARE_NODES(**figures))
        if not 0 <= spec.prepared <= spec.spares:
            raise ValueError(forming.PREPARED(prepared=spec.prepared, spares=spec.spares))
        if spec.floating < 0:
            raise ValueError(forming.FLOATING_NEGATIVE(floating=spec.floating))
        self.state = JobState(spec, timeouts)

    def handle(self, event: events.Event, now: float) -> list[Command]:
        """Handle `event`, and return the commands to execute, in this order. `now` is unix time; a time before the last one counts as the
        last.
        """
        state, kind = self.state, type(event)
        if state.phase is Phase.ENDED and not outlives(kind, state.phase):
            state.ignore(event, RefusalReason.PHASE)
            return []
        state.now = max(now, state.now)
        worker = state.workers.get(getattr(event, "worker", ""))
        if worker is not None:
            worker.last_seen_generation = max(worker.last_seen_generation, getattr(event, "generation", -1))
        why = refusal(kind, worker.state if worker is not None else None, state.phase)
        if why is not None:
            state.ignore(event, why)
            return []
        _HANDLERS[kind](state, event)
        if state.spec.floating and state.all_committed:
            taints.leave(state)  # after any event: claimed nodes may not be needed any more, or not suffice
        commands, state.out = state.out, []
        if state.ended in commands:
            assert state.ended is not None
            commands = commands[: commands.index(state.ended) + 1]
        return commands

    def migration_refusal(self, rank: int, to: str = "", device: str = "") -> str:
        """Return why `rank` cannot migrate now, to that node and device if they are given; empty if it can."""
        return migration.refusal(self.state, rank, to, device)

    def drill_refusal(self, rank: int) -> str:
        """Return why no spare can be drilled for `rank` (-1: any) now; empty if one can."""
        return drill.refusal(self.state, rank)

    def drill_due(self, step: int, now: float) -> bool:
        """Return whether an automatic drill should begin when every rank has committed `step` steps. `now`: unix time."""
        return drill.due(self.state, step, now)

    def belief_refusal(self, rank: int) -> str:
        """Return why `rank` cannot be declared right now; empty if it can."""
        return dispute.refusal(self.state, rank)

    def incidents(self) -> list[Incident]:
        """Return all incidents so far; the last one may be open (`seconds` = -1)."""
        state = self.state
        return state.incidents + ([state.incident.freeze()] if state.incident is not None else [])
