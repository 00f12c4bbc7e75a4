"""The order in which a process group adds up: a sum over ranks has other bits in another order, although every rank gives the same
numbers.

Each Gloo group of three or more ranks adds up numbers of very different sizes (`Groups.sums`), in every generation. The bits of the sum
must be those of the begin of training.

Known limits: it shows the algorithm that Gloo uses for a small sum. NCCL chooses its own by size and topology, and may choose another one
for a newcomer on another node; its groups are not probed. Orders inside a kernel are not visible at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from understudy.messages import newcomers as texts
from understudy.worker.errors import UnderstudyError
from understudy.worker.transport.groups import Groups


class ReductionOrder:
    """Keeps for each group a digest that shows its order: when training began, and in this generation."""

    def __init__(self, groups: Groups, rank: int) -> None:
        self._groups = groups
        self._rank = rank
        self.began: dict[str, int] = {}
        self.now: dict[str, int] = {}

    def begin(self) -> None:
        """Note the order when training begins, on all ranks together. Raises what the collectives raise."""
        self.began = self._groups.sums(self._rank)

    def look(self) -> None:
        """Note the order in a new generation, likewise."""
        self.now = self._groups.sums(self._rank)

    def adopt(self, began: Mapping[str, int]) -> None:
        """Adopt, on a newcomer, the order that a donor knows, of the groups that they share."""
        self.began |= {name: value for name, value in began.items() if name in self.now}

    def changed(self, began: Mapping[str, int] | None = None) -> list[str]:
        """Return the groups that add up in another order than when training began, as this rank or another one knows it."""
        before = self.began if began is None else began
        return [name for name, value in sorted(self.now.items()) if name in before and before[name] != value]

    def refuse(self, rank: int, newcomers: Collection[int]) -> None:
        """Refuse a changed order, on a survivor. Raises `UnderstudyError` for a group without newcomers; in the others the newcomers find
        it, and leave.
        """
        for name in self.changed():
            members = next(group.ranks for group in self._groups.describe() if group.name == name)
            if set(members).isdisjoint(newcomers):
                raise UnderstudyError(texts.OTHER_ORDER(rank=rank, group=name))
