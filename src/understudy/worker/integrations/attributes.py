"""Attributes of an object of a framework, such as a callback, that can be moved, as the state of a registered object."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from understudy.worker.census import leaves
from understudy.worker.encoding.codec import Unencodable

_CLOCKS = ("_last_time_checked",)  # readings of a clock that starts with the machine


class PlainAttributes:
    """Numbers, strings, tensors, generators of random numbers, and containers of them, up to `leaves.LARGEST` bytes each."""

    def __init__(self, thing: Any, without: Collection[str] = ()) -> None:
        """`without`: names that are left out."""
        self._thing, self._without = thing, {*without, *_CLOCKS}

    def state_dict(self) -> dict[str, bytes]:
        found = dict[str, bytes]()
        for name, value in vars(self._thing).items():
            if name not in self._without and leaves.is_leaf(value):
                with suppress(Unencodable):
                    found[name] = leaves.encoded(value)
        return found

    def load_state_dict(self, state: dict[str, bytes]) -> None:
        there = vars(self._thing)
        for name in self.state_dict().keys() - state.keys():
            del there[name]
        for name, data in state.items():
            there[name] = leaves.put_into(there.get(name), data)
