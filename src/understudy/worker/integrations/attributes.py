"""Plain attributes of an object of a framework, such as a callback, read and set like the state of any registered object."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

_PLAIN = (type(None), bool, int, float, str, bytes, torch.Tensor)
_CONTAINERS = (list, tuple, dict, set)


class Attributes:
    """Numbers, strings, tensors without a graph, and containers of them."""

    def __init__(self, thing: Any, without: Collection[str] = ()) -> None:
        """`without`: names that are left out."""
        self._thing, self._without = thing, without

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self._thing).items() if name not in self._without and is_plain(value)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        there = vars(self._thing)
        for name in self.state_dict().keys() - state.keys():
            del there[name]
        there.update(state)


def is_plain(value: Any) -> bool:
    """Return whether a value can be moved, with all that it contains."""
    kind = type(value)
    if kind in _CONTAINERS:
        return all(map(is_plain, value)) and (kind is not dict or all(map(is_plain, value.values())))
    return kind in _PLAIN and (kind is not torch.Tensor or value.grad_fn is None)
