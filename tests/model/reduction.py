"""Steps that need not be tried in every order with the others: where there is one, only it is followed.

That is sound for a step that

1. commutes with everything else that can happen, now and later, until it is taken: nothing that happens meanwhile takes it away or
   changes its effect, and it takes nothing away. Every way from here then has a twin that begins with this step, goes through the same
   messages in the same order for every observer, and ends in the same state; or
2. is cut short only by the end of its worker, which forgets the step: then that way is a way from after the step as well.

None of them can be taken for ever, because each brings its worker forward; so nothing is postponed for ever.

The reason for each is next to it. `tests/model/test_reduction.py` searches small bounds with and without: the same ends, the same
bugs.
"""

from __future__ import annotations

from tests.model import steps
from tests.model.bounds import Bounds
from tests.model.faults import FATAL, FAULTS, RECONNECTING
from tests.model.messages import records
from tests.model.state import State
from tests.model.world import Mode, Order, Shape, Worker, World
from understudy.core import events, floating
from understudy.core.transitions import Phase, WorkerState

_HARMLESS = (events.Committed, events.Finished, events.Verified, events.WorkerWarm, events.WorkerStarted, events.NewcomerReady)


class Reduction:
    def __init__(self, bounds: Bounds, shape: Shape) -> None:
        self._shape = shape
        kinds = list(FAULTS)
        self._fatal = [kinds.index(kind) for kind in FATAL]
        self._reconnecting = [kinds.index(kind) for kind in RECONNECTING]
        self._breaking = [kinds.index("break"), kinds.index("snap")]
        self._doubling = kinds.index("echo")
        self._migrates = bounds.floating > 0 or not bounds.faults.keys().isdisjoint(("migrate", "leave", "drain"))

    def remembers(self, state: State) -> bool:
        """Return whether an agent may have to send its earlier messages again."""
        return not all(state.world.linked) or (state.total > 0 and any(state.left[n] for n in self._reconnecting))

    def one(self, state: State) -> tuple[str, str] | None:
        """Return the worker whose next step is enough, and whether it "acts" or is "told" its next message; ("", "any"): of
        all steps, any one is enough.
        """
        if self.remembers(state):
            return None
        mortal = state.total > 0 and any(state.left[n] for n in self._fatal)
        for w in state.world.workers:
            if w.alive and not w.released:
                if self._is_doomed(state, w):  # it may as well do all that it can before it ends
                    return w.name, "told" if w.mode is Mode.SPARE or not steps.acts_of(state.world, self._shape, w) else "acts"
                if w.down and self._hears_early(state, w, w.down[0]):
                    return w.name, "told"
                if self._acts_early(state, w, mortal) and len(steps.acts_of(state.world, self._shape, w)) == 1:
                    return w.name, "acts"
        return ("", "any") if self._is_calm(state) else None

    def _hears_early(self, state: State, w: Worker, message: Order) -> bool:
        """Messages come in order, so nothing overtakes this one. It changes what its worker remembers and nothing that others see; a
        worker that dies forgets it. So only the worker itself matters: none of its own steps may be lost or changed.
        """
        if state.total > 0 and state.left[self._doubling]:
            return False
        usable = w.recover is not None and w.recover[1] > w.newest
        if records(w, message):
            return False  # others see its publication then
        match message[0]:
            case "assign":
                return w.mode is Mode.SPARE  # it does nothing by itself
            case "recover":
                return True  # it is looked at only by who waits for it, and lets that one go on
            case "abort" if w.mode in (Mode.VOTING, Mode.AGREED):
                return _is_stuck(state.world, w, self._shape) and not (state.total > 0 and any(state.left[n] for n in self._breaking))
            case "abort" if w.mode in (Mode.SETUP, Mode.READY, Mode.WAIT):
                return not usable  # there is nothing that it could go on with
            case "abort":
                return w.mode is Mode.DONE and w.pending is None  # it waits for others to finish
            case _:
                return False

    def _acts_early(self, state: State, w: Worker, mortal: bool) -> bool:
        """Its next step is the only one that it has, whatever it is told before; its message then may arrive arbitrarily late. If
        it is fenced before it sends that, the message is ignored. `mortal`: it may die first, and then it must not have sent anything.
        """
        speaks = not mortal and state.machine.state.migration is None
        match w.mode:
            case Mode.APPLY:
                reports = w.pending is None and w.reported != w.generation and w.t >= 0
                return speaks or not reports
            case Mode.SETUP:
                return speaks or not self._migrates  # else the message is not needed
            case Mode.IDLE | Mode.DONE:
                return speaks and w.aborted
            case Mode.VOTING | Mode.AGREED:
                return speaks and w.aborted and _is_stuck(state.world, w, self._shape)
            case Mode.RUN:
                return w.aborted  # if it dies instead, it might as well have died before it heard of the abort
            case Mode.WAIT:
                return speaks and w.abort > w.answered  # its message about the older generation comes too late already
            case Mode.STARTING:
                return speaks
            case _:
                return False

    def _is_doomed(self, state: State, w: Worker) -> bool:
        """Return whether it is fenced, and can only send ignored messages until it ends: in its generation, and in those into
        which decisions may still lead it, there is no other worker, its vote cannot pass, and no worker needs the store that it serves.
        """
        known = state.machine.state.workers.get(w.name)
        if ("kill",) not in w.down or known is None or known.state is not WorkerState.LOST:
            return False
        if any(records(w, message) for message in (w.called, *w.down)):
            return False
        store, others = f"s-{w.name}", [other for other in state.world.workers if other.alive and other is not w]
        newer = {message[1] for message in (w.pending, w.recover, *w.down) if message and len(message) > 1} - {w.generation}
        if state.machine.state.store == store or any(_needs(other, store, newer) for other in others):
            return False
        if w.rank < 0 or w.generation < 0 or w.mode in (Mode.WAIT, Mode.DONE):
            return True
        if any(other.generation == w.generation and other.mode is not Mode.WAIT for other in others):
            return False
        t = w.t + (w.mode is Mode.APPLY)
        return len({rank for g, when, rank, *_ in state.world.agreed if (g, when) == (w.generation, t)} - {w.rank}) < self._shape.ranks - 1

    def _is_calm(self, state: State) -> bool:
        """Return whether no generation will end any more: no faults are left, no message is on its way that could begin one, and all
        workers are in the newest or on the way to it. What is left are workers that each have at most one thing to do, and messages that
        the machine counts.
        """
        s, world = state.machine.state, state.world
        if state.total > 0 or state.before is not None or s.phase not in (Phase.TRAINING, Phase.RESUMING):
            return False
        if s.migration is not None or s.drill is not None or s.broken or any(world.cut) or any(world.away):
            return False
        if any(node.home_at or any(taint.leave or taint.deadline for taint in node.taints.values()) for node in s.nodes.values()):
            return False  # ranks leave it, or go home, when they can
        if s.claims or world.claims or floating.TIMER in s.timers:
            return False
        for w in world.workers:
            if not all(isinstance(event, _HARMLESS) for event in w.up):
                return False
            if w.alive:
                known = s.workers.get(w.name)
                if w.aborted or w.pause > w.newest or w.broken or known is None or known.state is WorkerState.LOST:
                    return False
                if any(message[0] in ("abort", "pause", "kill") for message in w.down):
                    return False
                if len(steps.acts_of(world, self._shape, w)) > 1:
                    return False
        return True


def _is_stuck(world: World, w: Worker, shape: Shape) -> bool:
    """Return whether its vote waits for a rank from which nothing can come any more: no worker has it in this generation."""
    if w.mode is Mode.VOTING:
        there = {rank for g, t, rank, _ in world.handed if (g, t) == (w.generation, w.t)}
        missing = set(shape.wards(w.rank)) - there
    else:
        missing = set(range(shape.ranks)) - {rank for g, t, rank, *_ in world.agreed if (g, t) == (w.generation, w.t)}
    able = {other.rank for other in world.workers if other.alive and other.generation == w.generation and other.mode is not Mode.WAIT}
    return not missing <= able


def _needs(w: Worker, store: str, generations: set[int]) -> bool:
    """Whether it is in one of these generations, or may go there, or to this store."""
    messages = [message for message in (w.pending, w.recover, *w.down) if message is not None and len(message) > 1]
    return w.generation in generations or any(message[1] in generations or message[-1] == store for message in messages)
