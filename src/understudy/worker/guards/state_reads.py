"""Refuses what a newcomer's script saves on the way to where the job continues, and copies of its state.

It passes code that the lost rank has already run, between transactions that are over, and has the state of its set-up there. A
checkpoint that it wrote would overwrite the one that the lost rank has saved, and a copy that it kept (the best weights so far) would
be another one. So state dicts of registered things, and pickles or copies of them as a whole, are refused: on a newcomer that is on its
way, and on no other worker. So is any file that it writes from scratch (`worker/guards/file_access.py`), and what `torch.save`, a
distributed checkpoint or safetensors write, which open their files in C++ or Rust. Before any loss such places are found in the source
of a loop and reported (`worker/guards/loop_checks.py`).

Known limits: tensors that are read one by one, and forward passes: what is computed from them on the way is of another state. Modules
of distributed checkpoints and safetensors that the script imports only on the way itself.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from understudy.worker import patches
from understudy.worker.guards.file_access import FileAccessGuard
from understudy.worker.state.registry import State

_METHODS = ("state_dict", "__reduce_ex__")  # the second: pickle and copy


class Reads:
    """Calls `read`, with its kind, when the script is about to save or copy a part of the `state`, and `wrote`, with its name and the
    place in the script, when it is about to write a file from scratch. `opened`: is installed already.
    """

    def __init__(self, state: State, opened: FileAccessGuard, read: Callable[[str], None], wrote: Callable[[str], None]) -> None:
        self._state = state
        self._opened = opened
        self._read = read
        self._wrote = wrote
        self._patches: dict[tuple[Any, str], patches.Patch] = {}
        self._where = (os.getpid(), threading.get_ident())
        self._ours = 0

    def prepare(self) -> None:
        """Wrap the functions that save checkpoints, before the set-up."""
        self._wrap(torch.serialization, "_open_zipfile_writer", self._opened.writes)  # torch.save calls it, under whatever name
        self._wrap_safetensors()

    def _wrap_safetensors(self) -> None:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "safetensors" and hasattr(module, "serialize_file"):  # save_file and save_model call it
                self._wrap(module, "serialize_file", lambda tensors, filename, *args, **kwargs: self._opened.writes(filename))

    def install(self) -> None:
        for kind in (nn.Module, Optimizer):
            for name in _METHODS:
                self._wrap(kind, name, self._checked(lambda thing: [thing]))
        self._wrap(torch, "save", self._checked(_inside))  # before it opens the file
        if (saver := sys.modules.get("torch.distributed.checkpoint.state_dict_saver")) is not None:
            package = sys.modules["torch.distributed.checkpoint"]
            for owner, name in [
                (saver, "_save_state_dict"),
                *((owner, name) for owner in (saver, package) for name in ("save", "async_save")),
            ]:
                self._wrap(owner, name, self._checkpoint)
        self._wrap_safetensors()
        self._opened.judge(self._wrote)

    def remove(self) -> None:
        self._opened.remove()
        while self._patches:
            self._patches.popitem()[1].remove()

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Mark reads inside as ours, and not the script's."""
        self._ours += 1
        try:
            yield
        finally:
            self._ours -= 1

    def _checked(self, things: Callable[[Any], list[Any]]) -> Callable[..., None]:
        """Check whether `things` of the first argument belong to the state."""

        def look(*args: Any, **kwargs: Any) -> None:
            for held in filter(self._state.holds, things(args[0]) if args else []):
                self._read(type(held).__qualname__)

        return look

    def _checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self._read("a distributed checkpoint")

    def _wrap(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        if (owner, name) in self._patches:
            return

        def noticed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not self._ours and self._where == (os.getpid(), threading.get_ident()):
                with self.ours():
                    look(*args, **kwargs)
            return function(*args, **kwargs)

        self._patches[owner, name] = patches.wrap(owner, name, noticed, "a newcomer saves nothing on its way")


def _inside(thing: Any, depth: int = 8) -> list[Any]:
    """Return the modules and optimizers in `thing`, which is one or a container of them."""
    if isinstance(thing, nn.Module | Optimizer):
        return [thing]
    items = list(thing.values()) if isinstance(thing, Mapping) else thing if isinstance(thing, list | tuple) else []
    return [found for item in items if depth for found in _inside(item, depth - 1)]
