"""When two states are one: without what cannot matter any more, and whatever the names of the workers.

Names. The core and the model use a worker's name to tell it from others, and to tell which of two is older (`choose_spare`, the order in
which ranks are given out); nothing else. So a renaming that keeps the order takes every way from a state to a way from its image.
States are compared after the workers that are still spoken of are renamed to w0, w1, ... in their order. If workers are there that the
machine does not know (their start is not in the journal), a later name could meet theirs, and nothing is renamed.

Ranks are not interchangeable: the store of a generation is with the lowest survivor, a copy is taken from the lowest holder.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from tests.model.machines import Interned
from tests.model.state import State
from tests.model.world import Mode, Worker, World
from understudy.core.model import VotePhase

_NAME = re.compile(r"(?:s-)?w(\d+)")


def tidy(world: World, current: int) -> World:
    """Return the same world without messages that can never be needed again: `current` is the machine's generation."""
    if world.records:
        wanted = {(w.heard, w.rank if w.rank >= 0 else w.prepared) for w in world.workers if w.mode in (Mode.SETUP, Mode.PREPARING)}
        hosts = {f"s-{w.name}" for w in world.workers if w.alive}
        kept = {(g, store, r) for g, store, r in world.records if store in hosts and (g >= current or (g, r) in wanted)}
        world = world._replace(records=frozenset(kept))
    if not (world.handed or world.agreed or world.met):
        return world
    first: dict[int, int] = {current: 99}
    for w in world.workers:
        if w.alive:
            first[w.generation] = min(first.get(w.generation, 99), w.t)
            if w.pending:
                first.setdefault(w.pending[1], 99)
            if w.recover:
                first.setdefault(w.recover[1], 99)
        for message in w.down:
            if len(message) > 1:
                first.setdefault(message[1], 99)
    return world._replace(
        handed=frozenset(x for x in world.handed if x[0] in first and (x[1] < 0 or x[1] >= first[x[0]])),
        agreed=frozenset(x for x in world.agreed if x[0] in first and x[1] >= first[x[0]]),
        met=frozenset(x for x in world.met if x[1] in first),
    )


def tidy_worker(w: Worker, remembers: bool) -> Worker:
    """Without `remembers` no agent will ever have to repeat anything."""
    if not w.alive:
        return w if remembers or not (w.said or w.lost) else w._replace(said=(), lost=None)
    done = w.recover is not None and w.recover[1] <= w.generation
    waits = w.mode is Mode.WAIT
    return w._replace(
        recover=None if done else w.recover,
        stand=w.stand if waits else VotePhase.RUNNING,
        abort=w.abort if w.abort > w.generation else -1,
        called=w.called if w.abort > w.generation else None,
        pause=w.pause if w.pause > w.generation else -1,
        pause_agreed=w.pause_agreed if w.pause_agreed > w.generation else -1,
        answered=w.answered if waits else -1,
        answer=w.answer if waits else None,
        reported=w.reported if w.reported == w.generation else -1,
        said=w.said if remembers else (),
        entered=w.entered if remembers else -1,
    )


class Keys:
    """Numbers for states: equal for those that are one."""

    def __init__(self) -> None:
        self._renamed: dict[tuple[int, int], int] = {}  # of a worker or machine, by the names that are spoken of
        self._same: dict[Any, int] = {}  # values with the same renaming have one number
        self._spoken: dict[int, int] = {}  # the names in a worker or machine, as bits
        self._workers: dict[Worker, Worker] = {}
        self._tidy: dict[tuple[int, bool], Worker] = {}  # by the identity of the objects in `_workers`

    def kept(self, w: Worker, remembers: bool) -> Worker:
        """The worker as `tidy_worker` leaves it; one object for all equal ones, because here they go by their identity."""
        known = self._tidy.get((id(w), remembers))
        if known is None:
            tidied = tidy_worker(w, remembers)
            known = self._workers.setdefault(tidied, tidied)
            self._tidy[id(known), remembers] = known
        return known

    def of(self, state: State) -> int:
        """All workers of `state` come from `kept`."""
        world, interned = state.world, state.interned
        rows = [w for w in world.workers if w.mode is not Mode.GONE or w.up or w.said or w.lost is not None or w.refused]
        spoken = 0
        for w in rows:
            spoken |= self._names(w, w)
        if spoken >> interned.machine.state.started or (state.before is not None and state.before is not interned):
            spoken = -1
        else:
            spoken |= self._names(interned.key, interned)
        before = -9 if state.before is None else self._code(state.before.key, state.before, spoken)
        return hash((
            tuple([self._code(w, w, spoken) for w in rows]), self._code(interned.key, interned, spoken), before, state.left, state.total,
            *world[1:-1], _renamed(world.records, spoken),
        ))  # fmt: skip

    def _names(self, value: Any, owner: Worker | Interned) -> int:
        known = self._spoken.get(id(owner))
        if known is None:
            known = self._spoken[id(owner)] = sum(1 << number for number in set(_numbers(value)))
        return known

    def _code(self, value: Any, owner: Worker | Interned, spoken: int) -> int:
        code = self._renamed.get((id(owner), spoken))
        if code is None:
            renamed = _renamed(value, spoken)
            code = self._renamed[id(owner), spoken] = self._same.setdefault(renamed, len(self._same))
        return code


def _numbers(value: Any) -> list[int]:
    """Of all workers that are named in it."""
    if isinstance(value, str):
        match = _NAME.fullmatch(value)
        return [int(match[1])] if match else []
    return [number for part in _parts(value) for number in _numbers(part)]


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (tuple, frozenset)):
        return tuple(value)
    return tuple(getattr(value, field.name) for field in dataclasses.fields(value)) if dataclasses.is_dataclass(value) else ()


def _renamed(value: Any, spoken: int) -> Any:
    """Rename workers in a value. `spoken`: a bit for each worker that is named; -1 renames none."""
    if isinstance(value, str):
        match = _NAME.fullmatch(value)
        if not match or spoken < 0:
            return value
        older = (spoken & ((1 << int(match[1])) - 1)).bit_count()
        return f"{value[: match.start(1)]}{older}"
    if isinstance(value, frozenset):
        return frozenset(_renamed(part, spoken) for part in value)
    if isinstance(value, tuple) or dataclasses.is_dataclass(value):
        return (type(value).__name__, *(_renamed(part, spoken) for part in _parts(value)))
    return value
