"""Functions, methods, partials and classes: a function is its closure, its defaults and its attributes, never its globals; a class is its
own names."""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Iterator
from typing import Any

from understudy.worker.census.leaves import LONGEST
from understudy.worker.census.readers.reading import Part, Reading, attributes, is_class_of_script
from understudy.worker.census.walk import Path, attributes_of
from understudy.worker.script_files import is_of_script


def read_function(path: Path, function: types.FunctionType) -> Reading:
    """Return the mark of a function, and what it captures."""
    code = function.__code__
    named = [(name, value) for name, value in function.__dict__.items() if name == "__wrapped__" or not name.startswith("_")]
    own = [(path.then("attribute", name), value) for name, value in named]
    if not is_of_script(code.co_filename):
        return Reading((function.__module__, function.__qualname__), tuple(own))
    defaults = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    given = [*zip(names, defaults, strict=True), *(function.__kwdefaults__ or {}).items()]
    parts = [(path.then("attribute", name), value) for name, value in given]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            parts.append((path.then("cell", name), cell.cell_contents))
        except ValueError:  # not set yet
            continue
    parts += own
    return Reading((code.co_filename, function.__qualname__, code.co_firstlineno), tuple(parts))


def read_method(path: Path, method: types.MethodType) -> Reading:
    """Return the object to which a method is bound."""
    return Reading(None, attributes(path, __func__=method.__func__, __self__=method.__self__))


def read_built_in(path: Path, function: types.BuiltinFunctionType | types.MethodWrapperType) -> Reading:
    """Return the object to which a function in C is bound."""
    bound = None if isinstance(function.__self__, types.ModuleType | type) else function.__self__
    return Reading(function.__qualname__, attributes(path, __self__=bound))


def read_class(path: Path, kind: type) -> Reading:
    """Return a class's own names."""
    if not is_class_of_script(kind):
        return Reading(kind.__qualname__)
    names = ((name, value) for name, value in list(vars(kind).items()) if not name.startswith(("__", "_abc_")))
    return Reading(kind.__qualname__, ((path.then("attribute", name), value) for name, value in names))


def read_wrapped(path: Path, method: Any) -> Reading:
    """Return the function inside a static or class method."""
    return Reading(None, attributes(path, __func__=method.__func__))


def read_property(path: Path, thing: property) -> Reading:
    """Return the functions of a property."""
    return Reading(None, attributes(path, fget=thing.fget, fset=thing.fset))


def read_partial(path: Path, partial: functools.partial[Any]) -> Reading:
    """Return the function and arguments of a partial."""
    return Reading(
        None, (*attributes(path, func=partial.func, args=partial.args, keywords=partial.keywords), *attributes_of(path, partial))
    )


def read_cache(path: Path, function: Any) -> Reading:
    """Return the results that `functools.cache` or `lru_cache` keeps."""
    tables = [part for part in gc.get_referents(function) if type(part) is dict and part is not function.__dict__]
    results = [
        (key, gc.get_referents(result) if type(result).__name__ == "_lru_list_elem" else result)
        for table in tables
        for key, result in list(table.items())
    ]
    return Reading(len(results), (*attributes(path, __wrapped__=function.__dict__.get("__wrapped__")), *_results(path, results)))


def _results(path: Path, results: list[tuple[Any, Any]]) -> Iterator[Part]:
    for number, (key, result) in enumerate(results[:LONGEST]):
        yield path.then("item", key if type(key) in (str, int) else number), result
