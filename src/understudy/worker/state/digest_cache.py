"""Digests of parameters and moments that are made while nobody waits for them.

A survivor that has come to rest waits for the slowest one and for the decision. What it will have to say of its state then it can
work out meanwhile: parameters and moments change only behind a vote, so those of a rank that has not voted stay as they are. What
the digests are worth is seen in the recovery as ever: donors are compared with each other, and the newcomer with them.

Not for ranks that wait in a vote, after which these change, nor with FSDP2, which has other tensors in their place then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from understudy.worker.state.registry import State
from understudy.worker.state.tensors import changes, counts_changes, digest_of, local_tensor

Mark = tuple[int, int]  # where a tensor is, and how often it was changed in place


class DigestCache:
    def __init__(self, state: State) -> None:
        self._state = state
        self._digests: dict[str, tuple[Mark, int]] = {}

    def make(self, enough: Callable[[], bool]) -> None:
        """Until `enough`."""
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
        """Those that still hold; all are forgotten."""
        known, self._digests = self._digests, {}
        return {entry: value for entry, (mark, value) in known.items() if entry in tensors and _mark(tensors[entry]) == mark}


def _mark(tensor: torch.Tensor) -> Mark:
    return local_tensor(tensor).data_ptr(), changes(tensor)
