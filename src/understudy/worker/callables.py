"""Takes apart the callable that a script makes a transaction: a function, a method, a partial, or an object that can be called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any, NamedTuple


class CallableParts(NamedTuple):
    """The functions of a callable, and the objects that last between its calls."""

    functions: tuple[FunctionType, ...]
    bound: Mapping[str, Any]  # what they are bound to, by name: it lasts from one call to the next


def parts_of(function: Any) -> CallableParts:
    """Return the script's functions in a callable, and the objects that they are bound to."""
    if isinstance(function, FunctionType):
        return CallableParts((function,), {})
    if isinstance(function, functools.partial):
        inner = parts_of(function.func)
        given = {f"arguments[{number}]": value for number, value in enumerate(function.args)}
        return CallableParts(inner.functions, {**inner.bound, **given, **function.keywords})
    if isinstance(function, MethodType):
        inner = parts_of(function.__func__)
        return CallableParts(inner.functions, {**inner.bound, "self": function.__self__})
    call = inspect.getattr_static(type(function), "__call__", None)
    return CallableParts((call,) if isinstance(call, FunctionType) else (), {"self": function})


def name_of(function: Any) -> str:
    """Return the name of a callable, in words of its source."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def returns_nothing(function: Any) -> bool:
    """Return whether a callable is annotated to return None."""
    if isinstance(function, functools.partial):
        return returns_nothing(function.func)
    annotations = getattr(function, "__annotations__", {})
    return "return" in annotations and annotations["return"] in (None, "None")
