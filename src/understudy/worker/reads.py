"""What a newcomer's script reads of the state between transactions, on the way to where the job continues.

It evaluates at the top of an iteration, or writes a checkpoint behind a loop. The lost rank did that with the state of that moment, and a
newcomer has only that of its set-up. So reads are noticed, on a newcomer and on nobody else (`Reads`): state dicts, what is pickled or
copied as a whole, forward passes, and what comes in front of one (a change of mode, weights that are put in). Behind the last transaction
that is over the state arrives right there. In front of it what may be written is refused, because it would go over what the lost rank has
saved.

What donors give is the state at the begin of the transaction that comes next. What the script changes in front of the read is overwritten
by it, except for attributes of modules, which the read may go by. What it changes behind the read is in it already, and would be changed
twice: it is put back at that transaction (`Kept`, a copy in the memory of the host).

Known limits: a forward pass in front of the last transaction that is over is let through, and what it prints is of another state
(`worker/ahead.py` tells). So are tensors that are read one by one, or inside a graph that was compiled before. Where state changes between
transactions behind a read of it, the newcomer has read it as it is after the change, which it tells.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from understudy.worker.digests import flat_bytes
from understudy.worker.errors import UnderstudyError
from understudy.worker.state import State
from understudy.worker.tensors import local_tensor, put_back

_KEPT = ("state_dict", "__reduce_ex__")  # what is read may be written; the second: pickle and copy
_USED = ("train", "requires_grad_", "load_state_dict", "named_parameters", "named_buffers")  # others of a module call one of these


class Reads:
    """Calls `read` where the script is about to read a part of the `state`, with its kind and whether it may be kept."""

    def __init__(self, state: State, read: Callable[[str, bool], None]) -> None:
        self.behind = False  # the last transaction that is over; in front of it only what may be kept is of interest
        self._state = state
        self._read = read
        self._before: list[tuple[type, str, Any]] = []  # class, name, method; None: inherited
        self._hook: Any = None
        self._where = (os.getpid(), threading.get_ident())
        self._ours = 0

    def install(self) -> None:
        self._hook = nn.modules.module.register_module_forward_pre_hook(lambda module, _: self._seen(module, False))
        values: set[type] = {type(value) for value in self._state.values.values()}
        for kind, names in [
            (nn.Module, (*_KEPT, *_USED)),
            (Optimizer, (*_KEPT, "load_state_dict")),
            *((kind, _KEPT[:1]) for kind in values),
        ]:
            for name in names:
                self._wrap(kind, name)

    def remove(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        while self._before:
            kind, name, method = self._before.pop()
            if method is None:
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
        method, own = getattr(kind, name), vars(kind).get(name)

        @functools.wraps(method)
        def noticed(thing: Any, *args: Any, **kwargs: Any) -> Any:
            if name != "train" or thing.training not in (args or kwargs.values() or (True,)):  # else it changes nothing
                self._seen(thing, name in _KEPT)
            return method(thing, *args, **kwargs)

        with suppress(TypeError):  # a class of an extension cannot be changed
            setattr(kind, name, noticed)
            self._before.append((kind, name, own))

    def _seen(self, thing: Any, kept: bool) -> None:
        if torch.compiler.is_compiling() or self._ours or not (kept or self.behind) or self._hook is None:
            return
        if self._where == (os.getpid(), threading.get_ident()):
            with self.ours():
                if self._state.holds(thing):
                    self._read(type(thing).__qualname__, kept)


class Kept:
    """All state of a newcomer as it has arrived."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tensors = {}
        for entry, tensor in state.all_tensors().items():
            memory = local_tensor(tensor)
            self._tensors[entry] = tensor, memory, memory.detach().to("cpu", copy=True)
        self._values = state.encoded_values()
        optimizers = state.optimizers.values()
        self._tables = [held for optimizer in optimizers for held in optimizer.state.values() if isinstance(held, dict)]
        self._states = [(optimizer.state, dict(optimizer.state)) for optimizer in optimizers]
        self._of_optimizers = [(optimizer, optimizer.state) for optimizer in optimizers]
        self._tables += [part._buffers for module in state.modules.values() for part in module.modules()]
        self._held = [dict(table) for table in self._tables]
        self._gradients = [(parameter, parameter.grad) for _, parameter in state.parameters()] if state.kept_gradients.matter else []

    def put_back(self) -> list[str]:
        """Puts back what is not the same any more; gives the entries. Raises `UnderstudyError` where that is not possible."""
        changed = set()
        before = self._state.encoded_values()
        for optimizer, states in self._of_optimizers:
            optimizer.state = states  # `load_state_dict` has replaced it
        for table, held in (*self._states, *zip(self._tables, self._held, strict=True)):
            if table.keys() != held.keys() or any(table[name] is not thing for name, thing in held.items()):
                table.clear()
                table.update(held)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for entry, (tensor, memory, content) in self._tensors.items():
                put_back(tensor, memory)
                if not torch.equal(flat_bytes(memory.cpu()), flat_bytes(content)):
                    memory.copy_(content)
                    changed.add(entry)
        now = self._state.encoded_values()
        for entry, data in self._values.items():
            if now.get(entry) != data:
                self._state.load_value(entry, data)
            if before.get(entry) != data:
                changed.add(entry)
        self._state.attributes.undo(self._values.keys())
        there = self._state.all_tensors()
        strange = [entry for entry, (_, memory, _) in self._tensors.items() if entry not in there or _other(there[entry], memory)]
        if strange or there.keys() - self._tensors.keys():
            raise UnderstudyError(
                f"{min([*strange, *(there.keys() - self._tensors.keys())])} was replaced between two transactions, where a newcomer cannot "
                "put it back: replace it in a @job.section, or change its values in place"
            )
        return sorted(changed)


def _other(tensor: torch.Tensor, memory: torch.Tensor) -> bool:
    return local_tensor(tensor).data_ptr() != memory.data_ptr() or local_tensor(tensor).shape != memory.shape
