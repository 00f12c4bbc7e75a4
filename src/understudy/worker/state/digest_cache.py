"""Digests of parameters and moments, computed during waits.

A survivor that has stopped waits for the slowest one and for the decision. Meanwhile it computes the digests that it will have to
report then: parameters and moments change only after a vote, so those of a rank that has not voted stay as they are. The recovery
checks these digests as always: donors are compared with each other, and the newcomer with them.

Not for ranks that wait in a vote, after which these change, nor with FSDP2, which has other tensors in their place then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from understudy.worker.state.registry import State
from understudy.worker.state.tensors import changes, counts_changes, digest_of, local_tensor

Mark = tuple[int, int]  # the address of a tensor, and how often it was changed in place


class DigestCache:
    def __init__(self, state: State) -> None:
        self._state = state
        self._digests: dict[str, tuple[Mark, int]] = {}

    def make(self, enough: Callable[[], bool]) -> None:
        """Compute digests until `enough`."""
        self.forget()
        for source in (self._state.parameters(), self._state.moments()):
            for entry, tensor in source:
                if enough():
                    return
                if counts_changes(tensor):
                    self._digests[entry] = _mark(tensor), digest_of(tensor)

    def forget(self) -> None:
        self._digests.clear()

    def take(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """Return the digests that are still valid, and forget all."""
        known, self._digests = self._digests, {}
        return {entry: value for entry, (mark, value) in known.items() if entry in tensors and _mark(tensors[entry]) == mark}


def _mark(tensor: torch.Tensor) -> Mark:
    return local_tensor(tensor).data_ptr(), changes(tensor)
