"""Names that a loop sets and the script reads behind it.

A newcomer that joins behind a loop does not run it, so such a name is missing there. It is found in the source, once, when the loop
begins, and told before any loss.

Known limits: only names of the scope that holds the `for` statement, and only where the source can be read. A name that has a value in
front of the loop is not missing, but has that value on a newcomer.
"""

from __future__ import annotations

import ast
import functools
import linecache
from pathlib import Path
from types import FrameType

OTHER_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def missing_behind(frame: FrameType) -> tuple[list[str], str]:
    """Names that the loop whose iterator is being made in `frame` sets, and that are read behind it without another value; and where."""
    return _missing_behind(frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def _missing_behind(file: str, line: int) -> tuple[list[str], str]:
    found = loop_at(file, line)
    if found is None:
        return [], ""
    scope, loop = found
    set_here = {name for name, store, _ in _names(loop) if store}
    before, behind = set[str](), list[str]()
    given = set[str]()
    for name, store, where in sorted(_names_of(scope), key=lambda item: (item[2], item[1])):
        if where < loop.lineno and store:
            before.add(name)
        elif where > (loop.end_lineno or line) and name in set_here - before - given:
            if store:
                given.add(name)
            elif name not in behind:
                behind.append(name)
    return behind, f"{file}:{line}"


def prepare(file: str) -> None:
    """Reads it, so that a recovery has not to wait for that."""
    _loops_of(file, _stamp(file))


def nodes_of(file: str) -> list[ast.AST]:
    """Of the whole source; none if it cannot be read."""
    return _nodes_of(file, _stamp(file))


def _stamp(file: str) -> tuple[int, int]:
    """It may be another one since it was read."""
    try:
        there = Path(file).stat()
    except (OSError, ValueError):
        return 0, 0
    return there.st_mtime_ns, there.st_size


def text_of(file: str) -> str:
    """Empty if it cannot be read."""
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
    """Each with its scope."""
    scopes = [node for node in _nodes_of(file, stamp) if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)]
    return [(scope, node) for scope in scopes for node in inside(scope) if isinstance(node, ast.For)]


def loop_at(file: str, line: int) -> tuple[ast.AST, ast.For] | None:
    """The innermost scope with a `for` statement whose iterable stands at `line`."""
    best: tuple[ast.AST, ast.For] | None = None
    for scope, node in _loops_of(file, _stamp(file)):
        if node.iter.lineno <= line <= (node.iter.end_lineno or line):
            best = scope, node
    return best


def inside(scope: ast.AST, itself: bool = False) -> list[ast.AST]:
    """The nodes in a scope or a part of one, without those of functions and classes in it; `itself`: and that node."""
    found: list[ast.AST] = []
    waiting = [scope] if itself else list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, OTHER_SCOPES):
            waiting += ast.iter_child_nodes(node)
    return found


def _names(node: ast.AST) -> list[tuple[str, bool, int]]:
    """Name, whether it is set, and line, of all in `node`."""
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
