"""Whether a transaction changes its arguments in place: it could not be done again with the same ones."""

from __future__ import annotations

from typing import Any

import torch

_LEAVES = {int, float, bool, str, bytes, type(None)}  # as most things that are no tensors


def versions(thing: Any) -> list[int]:
    """How often each tensor in `thing`, whatever containers hold it, was changed in place. Inference tensors do not count it."""
    found: list[int] = []
    _collect(thing, found)
    return found


def _collect(thing: Any, found: list[int]) -> None:
    kind = type(thing)
    if kind is tuple or kind is list:
        for part in thing:
            _collect(part, found)
    elif kind is dict:
        for part in thing.values():
            _collect(part, found)
    elif isinstance(thing, torch.Tensor):
        if not thing.is_inference():
            found.append(thing._version)
    elif kind not in _LEAVES:
        parts = torch.utils._pytree.tree_leaves(thing)
        if not (len(parts) == 1 and parts[0] is thing):
            _collect(parts, found)
