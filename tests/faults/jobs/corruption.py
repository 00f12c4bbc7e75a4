"""What can go wrong with state on its way to a newcomer, done on purpose, once it is at its destination or before it leaves.

Each kind changes one thing in one place and nothing else, at the point of the runtime (`understudy.worker.hooks`) that it passes.
`KIND;KIND;...` does the first one in generation 1, the next one in generation 2, and so on, and nothing in one whose KIND is empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from understudy.worker import hooks
from understudy.worker.api import session
from understudy.worker.data.loaders import Source
from understudy.worker.encoding.messages import DataPosition
from understudy.worker.generation.plan import Plan
from understudy.worker.state.buddy_store import BuddyStore
from understudy.worker.state.rank_local import seal, unseal
from understudy.worker.state.tensors import local_tensor


class Corruption:
    def __init__(self, folder: Path, kind: str, generation: int, optimizer: torch.optim.Optimizer) -> None:
        self._folder = folder
        self._kind = kind
        self._generation = generation
        self._optimizer = optimizer

    def _now(self) -> bool:
        """Whether to do it. Each process does it once, and leaves a file behind."""
        assert session.current is not None
        if session.current.control.generation != self._generation:
            return False
        try:
            os.close(os.open(self._folder / f"corrupted-{self._kind}-{os.getpid()}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    # -- on donors -------------------------------------------------------------------------------------------------------

    def flipped_bit_on_donors(self) -> None:
        def change(right: torch.Tensor) -> torch.Tensor:
            wrong = right.clone()
            wrong.view(torch.uint8).view(-1)[17] ^= 1
            return wrong

        self._wrap_send("first.weight", change)

    def stale_moment_on_donors(self) -> None:
        """The moment of one step before. Every step has another gradient, so it is another one."""
        parameter = self._optimizer.param_groups[0]["params"][0]
        kept: list[torch.Tensor] = []

        def keep(*_: Any) -> None:
            kept.append(local_tensor(self._optimizer.state[parameter]["exp_avg"]).clone())
            del kept[:-2]

        self._optimizer.register_step_post_hook(keep)

        def change(right: torch.Tensor) -> torch.Tensor:
            assert torch.equal(kept[-1], right), "this is the moment that is meant"
            return kept[0]

        self._wrap_send("/state/0/exp_avg", change)

    def _wrap_send(self, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """On the donors that send the tensor whose entry ends with `name`."""

        def outgoing(tensors: dict[str, torch.Tensor], plans: dict[int, Plan], member: int) -> dict[str, torch.Tensor]:
            entry = next(entry for entry in tensors if entry.endswith(name))
            messages = [message for plan in plans.values() for message in plan.messages if message.donor == member]
            sent = {piece.entry for message in messages for piece in message.pieces}
            return {**tensors, entry: change(local_tensor(tensors[entry]))} if entry in sent and self._now() else tensors

        hooks.on_filter("give", outgoing)

    def flipped_bit_in_copy_on_donors(self) -> None:
        """In the middle of a buddy copy that has random states in it."""

        def flipped(data: bytes, **_: Any) -> bytes:
            wrong = bytearray(data)
            wrong[len(wrong) // 2] ^= 4
            return bytes(wrong)

        self._wrap_copy(flipped)

    def copy_of_the_step_before_on_donors(self) -> None:
        """Random states and data position that were right once: an intact copy, of the wrong transaction."""

        def older(data: bytes, store: BuddyStore, rank: int, transaction: int) -> bytes:
            before = store.get(rank, transaction - 1)
            assert before is not None
            return before.data

        self._wrap_copy(older)

    def data_position_in_copy_on_donors(self) -> None:
        """A copy that is sealed with another position in the data."""

        def elsewhere(data: bytes, **_: Any) -> bytes:
            copy = unseal(data)
            assert copy.boundary is not None and copy.boundary.position.index > 0
            copy.boundary.position.index -= 1
            return seal(copy)

        self._wrap_copy(elsewhere)

    def _wrap_copy(self, change: Callable[..., bytes]) -> None:
        hooks.on_filter("copy", lambda data, **context: change(data, **context) if self._now() else data)

    # -- on newcomers ----------------------------------------------------------------------------------------------------

    def swapped_values_on_newcomer(self) -> None:
        def swap(tensors: dict[str, torch.Tensor]) -> None:
            if self._now():
                values = local_tensor(next(t for e, t in tensors.items() if e.endswith("first.weight"))).view(-1)
                assert values[3] != values[4]
                values[[3, 4]] = values[[4, 3]]

        hooks.on("taken", swap)

    def random_state_on_newcomer(self) -> None:
        """One number is drawn too many, just after the streams have been set."""

        def draw() -> None:
            if self._now():
                torch.rand(1)

        hooks.on("streams set", draw)

    def data_position_on_newcomer(self) -> None:
        """It starts one batch too late."""

        def late(position: DataPosition, source: Source) -> DataPosition:
            return replace(position, index=position.index + 1) if self._now() else position

        hooks.on_filter("position", late)


def install(kinds: str, folder: Path, optimizer: torch.optim.Optimizer, newcomer: bool) -> None:
    """`kinds` are names of methods above. Call it on every worker, before the first transaction."""
    for number, kind in enumerate(kinds.split(";")):
        if kind and kind.endswith("newcomer") == newcomer:
            getattr(Corruption(folder, kind, number + 1, optimizer), kind)()
