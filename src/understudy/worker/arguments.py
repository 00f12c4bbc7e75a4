"""Whether a transaction changes its arguments in place: it could not be done again with the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def versions(thing: Any) -> Iterator[int]:
    """How often each tensor in `thing`, whatever containers hold it, was changed in place. Inference tensors do not count it."""
    kind = type(thing)
    if kind is tuple or kind is list:
        for part in thing:
            yield from versions(part)
    elif kind is dict:
        yield from versions(list(thing.values()))
    elif isinstance(thing, torch.Tensor):
        if not thing.is_inference():
            yield thing._version
    else:
        parts = torch.utils._pytree.tree_leaves(thing)
        if not (len(parts) == 1 and parts[0] is thing):
            yield from versions(parts)
