"""What a newcomer's script reads of the state between transactions, on the way to where the job continues.

It evaluates at the top of an iteration, or writes a checkpoint behind a loop. The lost rank did that with the state of that moment, and a
newcomer has only that of its set-up. So such reads are noticed on a newcomer, and on nobody else (`Reads`): state dicts, modules and
optimizers that are pickled or copied as a whole, forward passes, and what comes in front of one (a change of mode, weights put in). If no
transaction that is over lies ahead any more, the state arrives right there. Else what is about to be written is refused, because it would
go over what the lost rank has saved.

What donors give is the state at the begin of the transaction that comes next. If the script changes some of it between that read and that
begin, the change is in it already, and the newcomer would make it twice: it is put back (`Kept`).

Known limits: a forward pass while transactions that are over lie ahead is let through, and what it prints is of another state
(`worker/ahead.py` tells). What a script does with tensors that it took from a module in its set-up is not noticed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from understudy.worker.digests import flat_bytes
from understudy.worker.state import State
from understudy.worker.tensors import local_tensor, put_back

_KEPT = ("state_dict", "__reduce_ex__")  # the second: pickle and copy
_USED = ("train", "requires_grad_", "load_state_dict", "named_parameters", "named_buffers")  # the others of a module call one of these


class Reads:
    """Calls `read` with the name of a thing of the `state` that the script is about to read, and whether that may be kept."""

    def __init__(self, state: State, read: Callable[[str, bool], None]) -> None:
        self._state = state
        self._read = read
        self._before: list[tuple[Any, str, Any]] = []  # class, name, method
        self._hook: Any = None
        self._ours = 0
        self._thread = threading.get_ident()

    def install(self) -> None:
        if self._hook is None:
            self._hook = nn.modules.module.register_module_forward_pre_hook(lambda module, _: self._seen(module, False))
            for name in (*_KEPT, *_USED):
                self._wrap(nn.Module, name)
            for name in _KEPT:
                self._wrap(Optimizer, name)

    def remove(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        while self._before:
            kind, name, method = self._before.pop()
            if method is None:  # inherited
                delattr(kind, name)
            else:
                setattr(kind, name, method)

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What is read inside is not the script's doing."""
        self._ours += 1
        try:
            yield
        finally:
            self._ours -= 1

    def _wrap(self, kind: type, name: str) -> None:
        method = getattr(kind, name)
        self._before.append((kind, name, vars(kind).get(name)))

        @functools.wraps(method)
        def noticed(thing: Any, *args: Any, **kwargs: Any) -> Any:
            if name != "train" or thing.training not in (args or kwargs.values() or (True,)):  # else it changes nothing
                self._seen(thing, name in _KEPT)
            return method(thing, *args, **kwargs)

        setattr(kind, name, noticed)

    def _seen(self, thing: Any, kept: bool) -> None:
        if torch.compiler.is_compiling() or self._ours or self._hook is None or threading.get_ident() != self._thread:
            return
        with self.ours():
            if self._state.covers(thing):
                self._read(type(thing).__qualname__, kept)


class Kept:
    """All state of a newcomer as it has arrived, in the memory of the host."""

    def __init__(self, state: State) -> None:
        self._state = state
        tensors = {entry: (tensor, local_tensor(tensor)) for entry, tensor in state.all_tensors().items()}
        self._tensors = {entry: (tensor, memory, memory.detach().to("cpu", copy=True)) for entry, (tensor, memory) in tensors.items()}
        self._values = state.encoded_values()
        self._attributes = state.attributes.note()

    def put_back(self) -> list[str]:
        """Puts back what is not the same any more; gives the entries."""
        changed = []
        self._state.attributes.restore(self._attributes)
        with torch.no_grad():
            for entry, (tensor, memory, content) in self._tensors.items():
                put_back(tensor, memory)
                if not torch.equal(flat_bytes(memory.cpu()), flat_bytes(content)):
                    memory.copy_(content)
                    changed.append(entry)
        now = self._state.encoded_values()
        for entry, data in self._values.items():
            if now.get(entry) != data:
                self._state.load_value(entry, data)
                changed.append(entry)
        return changed
