"""Finds names that a loop sets and the script reads after it.

A newcomer that joins after a loop does not run it, so such a name is missing there, or has the value that it had before the loop. It is
found in the source, once, when the loop begins; `census.left_names` carries it over.

Known limits: only names of the scope that contains the `for` statement, and only if the source can be read. Code before the loop, in a
loop around it, is not after it.
"""

from __future__ import annotations

import ast
import functools
import linecache
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

OTHER_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class ReadAfter:
    """The `names` that a loop sets and that are read after it without another value; those that are `new` have none before it."""

    names: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    where: str = ""  # FILE:LINE
    targets: tuple[str, ...] = ()  # of the loop itself, if it gets its items unchanged; one, or one for each item
    in_parts: bool = False  # for each item


def names_read_after(frame: FrameType) -> ReadAfter:
    """Return the names of the loop whose iterator is being made in `frame`."""
    return _names_read_after(frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def _names_read_after(file: str, line: int) -> ReadAfter:
    found = loop_at(file, line)
    if found is None:
        return ReadAfter()
    scope, loop = found
    set_here = {name for name, store, _ in _names(loop) if store}
    before, after = set[str](), list[str]()
    given = set[str]()
    for name, store, where in sorted(_names_of(scope), key=lambda item: (item[2], item[1])):
        if where < loop.lineno and store:
            before.add(name)
        elif where > (loop.end_lineno or line) and name in set_here - given:
            if store:
                given.add(name)
            elif name not in after:
                after.append(name)
    new = tuple(name for name in after if name not in before)
    parts = loop.target.elts if isinstance(loop.target, ast.Tuple | ast.List) else [loop.target]
    names = tuple(part.id for part in parts if isinstance(part, ast.Name))
    direct = isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Attribute) and len(names) == len(parts)
    return ReadAfter(tuple(after), new, f"{Path(file).name}:{line}", names if direct else (), parts[0] is not loop.target)


def prepare(file: str) -> None:
    """Read the file, so that a recovery does not have to wait for that."""
    _loops_of(file, _stamp(file))


def nodes_of(file: str) -> list[ast.AST]:
    """Return the nodes of the whole source; none if it cannot be read."""
    return _nodes_of(file, _stamp(file))


def _stamp(file: str) -> tuple[int, int]:
    """Return the time and size of a file, which may have changed since it was read."""
    try:
        there = Path(file).stat()
    except (OSError, ValueError):
        return 0, 0
    return there.st_mtime_ns, there.st_size


def text_of(file: str) -> str:
    """Return the source; empty if it cannot be read."""
    return _text_of(file, _stamp(file))


@functools.lru_cache(256)
def _text_of(file: str, _: tuple[int, int]) -> str:
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


@functools.lru_cache(256)
def _nodes_of(file: str, stamp: tuple[int, int]) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(_text_of(file, stamp))))
    except (SyntaxError, ValueError):
        return []


@functools.lru_cache(256)
def _loops_of(file: str, stamp: tuple[int, int]) -> list[tuple[ast.AST, ast.For]]:
    """Return the loops, each with its scope."""
    scopes = [node for node in _nodes_of(file, stamp) if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)]
    return [(scope, node) for scope in scopes for node in inside(scope) if isinstance(node, ast.For)]


def loop_at(file: str, line: int) -> tuple[ast.AST, ast.For] | None:
    """Return the innermost scope with a `for` statement whose iterable is at `line`."""
    best: tuple[ast.AST, ast.For] | None = None
    for scope, node in _loops_of(file, _stamp(file)):
        if node.iter.lineno <= line <= (node.iter.end_lineno or line):
            best = scope, node
    return best


def inside(scope: ast.AST, itself: bool = False) -> list[ast.AST]:
    """Yield the nodes in a scope or a part of one, without those of functions and classes in it; `itself`: and that node."""
    found: list[ast.AST] = []
    waiting = [scope] if itself else list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, OTHER_SCOPES):
            waiting += ast.iter_child_nodes(node)
    return found


def _names(node: ast.AST) -> list[tuple[str, bool, int]]:
    """Return all names in `node`: name, whether it is set, and line."""
    return [(one.id, isinstance(one.ctx, ast.Store), one.lineno) for one in [node, *inside(node)] if isinstance(one, ast.Name)]


def _names_of(scope: ast.AST) -> list[tuple[str, bool, int]]:
    found = _names(scope)
    for node in inside(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append((node.name, True, node.lineno))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found += [((alias.asname or alias.name).split(".")[0], True, node.lineno) for alias in node.names]
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = scope.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        found += [(argument.arg, True, scope.lineno) for argument in every if argument is not None]
    return found
