"""Whether a tensor still has a history that a backward could go through. Another worker can be given its values, but not its history.

After a backward the nodes of the graph still exist, but their saved tensors are freed, and a second backward raises. A hidden state
that is detached where the next step begins is of this kind: its values are all of it.

Source: torch frees the saved tensors of a node that has run (`retain_graph=False`). Then a built-in node returns for each
`_raw_saved_*` a `SavedTensor` whose `data` is `None`; one of a custom `autograd.Function` raises.

Known limits: the first `NODES` nodes of a graph, nearest first.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

import torch

NODES = 200


def has_history(tensor: torch.Tensor) -> bool:
    """Return whether a backward through `tensor` would work, as far as can be seen."""
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
    # A saved tensor that a node may do without, such as a bias, is empty from the start. A node counts as freed if it has none at all.
    saved = [one for part in held for one in (part if isinstance(part, tuple | list) else (part,))]
    return bool(saved) and all(getattr(one, "data", None) is None for one in saved)


@functools.cache
def _saved_by(kind: Any) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
