"""One state of the whole: the world, the machine, and what may still happen to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.model.machines import Interned
from tests.model.world import World
from understudy.core.machine import Machine


class State(NamedTuple):
    world: World
    interned: Interned
    left: tuple[int, ...]  # faults of each kind, in the order of `FAULTS`
    total: int  # of all kinds together
    before: Interned | None = None  # as it is in the journal, which is written later; None: it will not be read

    @property
    def machine(self) -> Machine:
        return self.interned.machine


Step = tuple[str, Callable[[], State]]  # what happens, and what comes of it
Steps = Iterable[Step]


def always(state: State) -> Callable[[], State]:
    return lambda: state
