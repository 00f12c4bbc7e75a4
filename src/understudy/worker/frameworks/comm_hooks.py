"""Communication hooks of DDP: which a reducer has, and whether a redo and a newcomer would compute the same with them.

They are observed where torch registers them with a reducer, because some leave no other trace: a built-in hook (C++) is in no list.

A hook may keep something between two backwards, as PowerSGD does its errors and its low-rank factors. That is state which steers what
every rank adds up, so it has to be registered, as an object with `state_dict` and `load_state_dict`; else the hook is refused before
the first transaction. Numbers, functions, modules and process groups in a hook are no state.

Limit: state that a hook keeps elsewhere is not known: in a global variable, in what it captures, in the object whose method it is.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import BuiltinCommHookType
from torch.distributed import ProcessGroup

from understudy.worker import patches


@dataclass(frozen=True)
class Hook:
    """`function`: torch's kind of built-in hook, or a callable of the script, which torch calls with `state`."""

    function: Any
    state: Any = None

    @property
    def name(self) -> str:
        return _name(self.function)

    @property
    def builtin(self) -> bool:
        return isinstance(self.function, BuiltinCommHookType)

    def register(self, reducer: Any) -> None:
        if self.builtin:
            dist._register_builtin_comm_hook(reducer, self.function)  # type: ignore[attr-defined]
        else:
            dist._register_comm_hook(reducer, self.state, self.function)  # type: ignore[attr-defined]


_hooks: weakref.WeakKeyDictionary[Any, list[Hook]] = weakref.WeakKeyDictionary()  # by reducer


def watch() -> None:
    """Note every registration from now on. DDP looks both functions up in torch.distributed when it calls them."""
    if any(patch.by == __name__ for patch in patches.installed()):
        return

    def register(python: Callable[..., None], reducer: Any, state: Any, hook: Callable[..., Any]) -> None:
        python(reducer, state, hook)
        _hooks.setdefault(reducer, []).append(Hook(hook, state))

    def register_builtin(builtin: Callable[..., None], reducer: Any, kind: Any) -> None:
        builtin(reducer, kind)
        _hooks.setdefault(reducer, []).append(Hook(kind))

    patches.wrap(dist, "_register_comm_hook", register, "a newcomer's DDP gets the same hooks")
    patches.wrap(dist, "_register_builtin_comm_hook", register_builtin, "a newcomer's DDP gets the same hooks")


def hooks_of(reducer: Any) -> list[Hook]:
    return list(_hooks.get(reducer, []))


def register_again(old: Any, new: Any) -> None:
    for hook in hooks_of(old):
        hook.register(new)


def keeps(hook: Hook, registered: Container[int]) -> str:
    """Return what a hook may keep between two backwards and is not registered, for a person; "" if none. `registered`: ids of objects."""
    if hook.builtin:
        return ""
    for thing in [hook.state, *_given(hook.function)]:
        if id(thing) not in registered and not _is_plain(thing):
            return f"a {type(thing).__qualname__}"
    return ""


_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, type, types.ModuleType, types.BuiltinFunctionType, ProcessGroup),
    *(torch.dtype, torch.device, torch.nn.Module),
)


def _is_plain(thing: Any) -> bool:
    if isinstance(thing, _PLAIN) or thing is dist.group:
        return True
    if isinstance(thing, tuple | frozenset):
        return all(map(_is_plain, thing))
    return False


def _given(function: Any) -> list[Any]:
    """Return what a callable is given with every call."""
    if isinstance(function, functools.partial):
        return [*_given(function.func), *(thing for thing in [*function.args, *function.keywords.values()] if not callable(thing))]
    return []


def _name(function: Any) -> str:
    if isinstance(function, functools.partial):
        return _name(function.func)
    return str(getattr(function, "__qualname__", None) or getattr(function, "name", None) or type(function).__qualname__)
