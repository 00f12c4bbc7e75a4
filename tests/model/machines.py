"""When two machines are the same: everything by which they may ever decide is, whatever the time and the texts."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.model.world import order
from understudy.core.machine import Machine
from understudy.core.state import WorkerState


class Interned(NamedTuple):
    """A machine that nobody changes any more, and what stands for it. Two of equal keys are one object."""

    key: Any
    machine: Machine


def machine_key(machine: Machine, heard: bool = True) -> Any:
    """Everything that the machine may ever decide by, without times and texts."""
    s = machine.state
    recovery, migration, incident = s.recovery, s.migration, s.incident
    workers = tuple(
        (
            w.name,
            w.node,
            w.spare,
            w.state.value,
            w.store,
            w.rank,
            w.local_rank,
            w.heard if heard and w.state is not WorkerState.LOST else 0,
            w.recovered,
            w.committed,
            w.step,
            w.finished,
        )
        + ((w.assign.generation, w.assign.store) if w.assign is not None else ())
        for w in s.workers.values()
        if w.state is not WorkerState.LOST or w.name in s.ranks.values()
    )
    return (
        s.phase.value, s.generation, s.promised, s.store, s.started, s.settled, s.begun, s.restarts,
        s.ended is not None and s.ended.exit_code,
        tuple((n.name, n.spares, n.refused, n.failed_starts, n.lost) for n in s.nodes.values()),
        workers,
        tuple(sorted(s.ranks.items())), frozenset(s.departed), bool(s.broken), frozenset(s.timers),
        None if recovery is None else (
            recovery.generation, recovery.planned, recovery.store, frozenset(recovery.waiting), recovery.unexplained, recovery.counted,
            tuple(sorted((name, answer.position, answer.copies) for name, answer in recovery.answers.items())),
            recovery.decision, tuple(sorted((name, order(message)) for name, message in recovery.sent.items())), len(recovery.lost),
        ),
        None if migration is None else (migration.rank, migration.leaver, migration.newcomer, migration.generation, migration.stage.value),
        None if incident is None else (incident.planned, incident.decision),
    )  # fmt: skip
