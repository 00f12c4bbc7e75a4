"""What a newcomer's script saves or copies of its state on the way to where the job continues is refused.

It passes by code that the lost rank has behind it, between transactions that are over, and has the state of its set-up there. A checkpoint
that it wrote would go over the one that the lost rank has saved, and a copy that it kept (the best weights so far) would be another one. So
state dicts of what is registered, and what of it is pickled or copied as a whole, are refused: on a newcomer that is on its way, and on
nobody else. Before any loss such places are found in the source of a loop and told (`worker/script/read_ahead.py`).

Known limits: tensors that are read one by one, and forward passes: what is computed from them on the way is of another state. A file that
the script has opened itself, for writing, is empty by then.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from understudy.worker.state.registry import State

_METHODS = ("state_dict", "__reduce_ex__")  # the second: pickle and copy


class Reads:
    """Calls `read`, with its kind, where the script is about to save or copy a part of the `state`."""

    def __init__(self, state: State, read: Callable[[str], None]) -> None:
        self._state = state
        self._read = read
        self._before: list[tuple[Any, str, Any]] = []  # class or module, name, what was there; None: inherited
        self._where = (os.getpid(), threading.get_ident())
        self._ours = 0

    def install(self) -> None:
        for kind in (nn.Module, Optimizer):
            for name in _METHODS:
                self._wrap(kind, name, lambda thing: [thing])
        self._wrap(torch, "save", _inside)  # before it opens the file

    def remove(self) -> None:
        while self._before:
            owner, name, there = self._before.pop()
            if there is None:
                delattr(owner, name)
            else:
                setattr(owner, name, there)

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What is read inside is not the script's doing."""
        self._ours += 1
        try:
            yield
        finally:
            self._ours -= 1

    def _wrap(self, owner: Any, name: str, things: Callable[[Any], list[Any]]) -> None:
        function = getattr(owner, name)
        self._before.append((owner, name, vars(owner).get(name)))

        @functools.wraps(function)
        def noticed(*args: Any, **kwargs: Any) -> Any:
            if not self._ours and args and self._where == (os.getpid(), threading.get_ident()):
                with self.ours():
                    for held in filter(self._state.holds, things(args[0])):
                        self._read(type(held).__qualname__)
            return function(*args, **kwargs)

        setattr(owner, name, noticed)


def _inside(thing: Any, depth: int = 8) -> list[Any]:
    """Modules and optimizers in `thing`, which is one or a container of them."""
    if isinstance(thing, nn.Module | Optimizer):
        return [thing]
    items = list(thing.values()) if isinstance(thing, Mapping) else thing if isinstance(thing, list | tuple) else []
    return [found for item in items if depth for found in _inside(item, depth - 1)]
