"""Whether a tensor still has a history that a backward could go through: no other worker can be given that, only its values.

After a backward the nodes of the graph are still there, but what they had saved is gone, and a second backward raises. A hidden state that
is taken off its graph where the next step begins is of this kind: its values are all there is to it.

Source: torch frees what a node has saved when it has run (`retain_graph=False`); a built-in node answers its `_raw_saved_*` with a
`SavedTensor` whose `data` is `None` then, one of a custom `autograd.Function` raises.

Known limits: the first `NODES` nodes of a graph, nearest first.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

import torch

NODES = 200


def has_history(tensor: torch.Tensor) -> bool:
    """Whether a backward through it would work, as far as can be seen."""
    if tensor.grad_fn is None:
        return False
    waiting, seen = deque[Any]([tensor.grad_fn]), {tensor.grad_fn}
    while waiting:
        node = waiting.popleft()
        if _is_freed(node):
            return False
        for before, _ in node.next_functions:
            if before is not None and before not in seen and len(seen) < NODES:
                seen.add(before)
                waiting.append(before)
    return True


def _is_freed(node: Any) -> bool:
    kind: Any = type(node)
    try:
        held = [getattr(node, name) for name in _saved_by(kind)]
    except RuntimeError:
        return True
    # What a node may do without, as a bias, is empty from the start: freed is one that holds nothing at all.
    saved = [one for part in held for one in (part if isinstance(part, tuple | list) else (part,))]
    return bool(saved) and all(getattr(one, "data", None) is None for one in saved)


@functools.cache
def _saved_by(kind: Any) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
