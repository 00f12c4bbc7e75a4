"""The machine that ships, asked each question once: its next state and its answer. Two that cannot be distinguished are one.

Every answer is compared with the journal: a fresh machine that is given all events on the way here, as a restarted orchestrator
does, must have an equal state, texts included. And fields that are left out of `machine_key` must not matter: where two ways lead to
machines that differ in those only, both are asked from then on, and must answer alike.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.model import claims, departures, drills
from tests.model.messages import order
from tests.model.world import Wrong
from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.state import JobState, Node
from understudy.core.transitions import WorkerState


class Interned(NamedTuple):
    """A machine that does not change any more, and its key. Two of equal keys are one object."""

    key: Any
    machine: Machine


class Machines:
    """All machines so far. `reconnects`: whether an agent may ever connect again, so that messages of each worker matter."""

    def __init__(self, check: Callable[[Machine], None], reconnects: bool) -> None:
        self._check = check
        self._reconnects = reconnects
        self._known: dict[Any, Interned] = {}
        self._frozen: dict[int, bytes] = {}
        self._twins: dict[int, bytes] = {}  # the state of another machine with the same key
        self._ways: dict[int, tuple[Interned, events.Event]] = {}  # how each was met first
        self._answers: dict[tuple[int, events.Event], tuple[Interned, list[commands.Command]]] = {}
        self._fresh = b""
        self._opening: list[events.Event] = []

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, machine: Machine, opening: list[events.Event]) -> tuple[Interned, list[commands.Command]]:
        """The first one: `machine` has handled nothing yet."""
        self._fresh, self._opening = pickle.dumps(machine.state, -1), opening
        answer = [command for event in opening for command in machine.handle(event, 0.0)]
        return self._intern(machine), answer

    def ask(self, before: Interned, event: events.Event) -> tuple[Interned, list[commands.Command]]:
        question = (id(before), event)
        known = self._answers.get(question)
        if known is None:
            known = self._answers[question] = self._ask(before, event)
        return known

    def _ask(self, before: Interned, event: events.Event) -> tuple[Interned, list[commands.Command]]:
        machine = _thawed(self._frozen[id(before)])
        speaker = machine.state.workers.get(getattr(event, "worker", ""))
        fenced = speaker is not None and speaker.state is WorkerState.LOST
        answer = machine.handle(event, 0.0)
        self._check(machine)
        drills.follow(before.machine.state, event, machine.state, answer)
        departures.follow(before.machine.state, event, machine.state)
        claims.follow(before.machine.state, event, machine.state, answer)
        if self._replayed(before, event) != machine.state:
            raise Wrong("the journal replayed gives another state")
        after = self._intern(machine, (before, event))
        if fenced and after is not before:
            raise Wrong(f"{type(event).__name__} of {speaker.name if speaker else ''}, which is fenced, has changed something")
        twin = self._twins.get(id(before))
        if twin is not None:
            other = _thawed(twin)
            words = list(filter(None, map(order, other.handle(event, 0.0))))
            if words != list(filter(None, map(order, answer))) or self.key(other) != after.key:
                raise Wrong("two machines that count as one answer differently: something that matters is not in their key")
        return after, answer

    def way(self, interned: Interned) -> list[events.Event]:
        """Return the events that lead to it: the content of the journal."""
        found = []
        while id(interned) in self._ways:
            interned, event = self._ways[id(interned)]
            found.append(event)
        return self._opening + found[::-1]

    def _replayed(self, before: Interned, event: events.Event) -> JobState:
        machine = _thawed(self._fresh)
        for one in [*self.way(before), event]:
            machine.handle(one, 0.0)
        return machine.state

    def _intern(self, machine: Machine, way: tuple[Interned, events.Event] | None = None) -> Interned:
        key = self.key(machine)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Interned(key, machine)
            self._frozen[id(known)] = pickle.dumps(machine.state, -1)
            if way is not None:
                self._ways[id(known)] = way
        elif id(known) not in self._twins and machine.state != known.machine.state:
            self._twins[id(known)] = pickle.dumps(machine.state, -1)
        return known

    def key(self, machine: Machine) -> Any:
        return machine_key(machine, heard=self._reconnects)


def _thawed(frozen: bytes) -> Machine:
    machine = Machine.__new__(Machine)
    machine.state = pickle.loads(frozen)
    return machine


def _taints(node: Node) -> tuple[Any, ...]:
    return tuple(sorted((*key, taint.leave, taint.deadline > 0, taint.lose, taint.done) for key, taint in node.taints.items()))


def _node(n: Node) -> tuple[Any, ...]:
    devices = tuple(sorted(n.devices.items())), tuple(sorted((*key, taint.leave, taint.device) for key, taint in n.device_taints.items()))
    return n.name, n.spares, n.refused, n.failed_starts, n.lost, _taints(n), devices, n.home_at, n.spares_for_return, n.claim, n.room


def machine_key(machine: Machine, heard: bool = True) -> Any:
    """Everything that the machine may ever decide by, without times and texts; without `heard` for agents that never connect again."""
    s = machine.state
    recovery, migration, drill, incident = s.recovery, s.migration, s.drill, s.incident
    workers = tuple(
        (
            w.name,
            w.node,
            w.spare,
            w.state.value,
            bool(w.pid),
            w.store,
            w.rank,
            w.local_rank,
            w.device,
            w.last_seen_generation if heard and w.state is not WorkerState.LOST else 0,
            w.recovered,
            w.committed,
            w.finished,
            w.moves,
        )
        + ((w.assign.generation, w.assign.store) if w.assign is not None else ())
        + (("prepared", w.prepare.generation, w.prepare.rank, w.prepare.store, w.ready) if w.prepare is not None else ())
        for w in s.workers.values()
        if w.state is not WorkerState.LOST or w.name in s.ranks.values()
    )
    sent = () if recovery is None or not heard else tuple(sorted((name, order(message)) for name, message in recovery.sent.items()))
    return (
        s.phase.value, s.generation, s.highest_announced_generation, s.store, f"w{s.started}", s.all_committed, s.begun, s.restarts,
        s.ended is not None and s.ended.exit_code,
        tuple(map(_node, s.nodes.values())),
        workers,
        tuple(sorted(s.ranks.items())), frozenset(s.finished_then_lost), tuple(sorted(s.unprepared.items())),
        s.unprepared_in_a_row, tuple(sorted(s.failed_moves.items())), bool(s.broken), frozenset(s.timers),
        None if recovery is None else (
            recovery.generation, recovery.planned, recovery.store, frozenset(recovery.waiting), recovery.unexplained, recovery.counted,
            tuple(sorted((name, answer.position, answer.copies) for name, answer in recovery.answers.items())),
            recovery.decision, sent, len(recovery.lost),
        ),
        s.drilled, None if drill is None else (drill.number, drill.rank, drill.worker, drill.holder, drill.running),
        None if migration is None else (
            tuple((move.rank, move.leaver, move.newcomer, move.ready) for move in migration.moves),
            migration.generation, migration.stage.value, migration.boundary,
        ),
        tuple((claim.number, claim.node) for claim in s.claims.values()), s.claimed,
        None if s.crashes is None else (
            s.crashes.transaction, tuple(sorted(s.crashes.newcomers)), s.crashes.survivors, len(s.crashes.descriptions)
        ),
        None if s.dispute is None else (s.dispute.sides, s.dispute.workers),
        tuple(s.failed_devices),
        None if incident is None else (incident.planned, incident.decision),
    )  # fmt: skip
