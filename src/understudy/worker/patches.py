"""All replacements of something of torch's or Python's by the worker, in one list: what, why, and by which module.

    wrap    a function around the one that is there, which gets it as its first argument
    put     another object in its place

The removal of a patch depends on what is there at that time and not on what was there before it: if the script or a library has wrapped
it meanwhile, theirs stays, and ours below it does nothing any more.

No other module assigns to a module or a class that is not ours; a test reads the sources for that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

_MISSING = object()  # it is inherited


@dataclass(eq=False)
class Patch:
    target: str  # as a person would write it
    why: str
    by: str  # the module that made it
    _owner: Any = field(repr=False)
    _name: str = field(repr=False)
    _before: Any = field(repr=False, default=_MISSING)
    _ours: Any = field(repr=False, default=None)
    active: bool = True

    def remove(self) -> None:
        """Remove the patch. The second call does nothing."""
        if not self.active:
            return
        self.active = False
        _patches.remove(self)
        if vars(self._owner).get(self._name) is self._ours:
            if self._before is _MISSING:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self._before)

    def _install(self, ours: Any) -> None:
        self._before, self._ours = vars(self._owner).get(self._name, _MISSING), ours
        setattr(self._owner, self._name, ours)
        _patches.append(self)


_patches: list[Patch] = []


def installed() -> list[Patch]:
    """Return all present patches, in the order in which they were made."""
    return list(_patches)


def wrap(owner: Any, name: str, around: Callable[..., Any], why: str) -> Patch:
    """Have `around(function, *args, **kwargs)` called in place of the function `name` of `owner`: a module, a class, or one object."""
    patch, function = _made(owner, name, around, why), getattr(owner, name)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(function, *args, **kwargs) if patch.active else function(*args, **kwargs)

    patch._install(wrapper)
    return patch


def put(owner: Any, name: str, thing: Any, why: str) -> Patch:
    """Put `thing` in the place of the attribute `name` of `owner`, a module or a class."""
    patch = _made(owner, name, thing, why)
    patch._install(thing)
    return patch


def _made(owner: Any, name: str, by: Any, why: str) -> Patch:
    kind = owner if isinstance(owner, type | ModuleType) else type(owner)
    shown = kind.__name__ if isinstance(kind, ModuleType) else f"{kind.__module__}.{kind.__qualname__}"
    return Patch(f"{shown}.{name}", why, getattr(by, "__module__", ""), owner, name)
