"""Names that a loop carries from one iteration to the next, found by reading its source once.

A name that every iteration sets before it reads it, as `loss = step(batch)`, is not carried: a newcomer's first iteration sets it, too. Nor
is the target of the loop itself.

Known limits: only the scope that holds the loop; a name that is set under a condition, or read by a function that the loop calls, counts
as carried. Without source nothing is known, and everything does.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from types import FrameType

from understudy.worker.script.names import OTHER_SCOPES, nodes_of

_LOOPS = (ast.For, ast.While, ast.AsyncFor)


def set_anew(frame: FrameType) -> frozenset[str]:
    """Names of the scope of `frame` that the loops around its present line set before they read them."""
    code = frame.f_code
    of_module = not code.co_flags & inspect.CO_OPTIMIZED
    return _set_anew(code.co_filename, 0 if of_module else code.co_firstlineno, frame.f_lineno)


@functools.lru_cache(1024)
def _set_anew(file: str, first: int, line: int) -> frozenset[str]:
    scope = _scope(file, first)
    if scope is None:
        return frozenset()
    found: set[str] = set()
    for node in _inside(scope):
        if isinstance(node, _LOOPS) and node.lineno <= line <= (node.end_lineno or line):
            set_here: set[str] = set()
            if not isinstance(node, ast.While):
                set_here |= {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
            read: set[str] = set() if not isinstance(node, ast.While) else set(_reads(node.test))
            for statement in node.body:
                _through(statement, set_here, read)
            found |= set_here - _captured(scope)
    return frozenset(found)


def _scope(file: str, first: int) -> ast.AST | None:
    """The function whose code begins at `first`, or, with 0, the module."""
    for node in nodes_of(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if first in (node.lineno, *(one.lineno for one in node.decorator_list)):
                return node
        elif isinstance(node, ast.Module) and not first:
            return node
    return None


def _captured(scope: ast.AST) -> set[str]:
    """Names that functions inside the scope read: these may be called before the name is set."""
    found: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, OTHER_SCOPES) and node is not scope:
            found |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return found


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, OTHER_SCOPES):
            yield child
            yield from _inside(child)


def _reads(node: ast.AST) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]


def _through(statement: ast.stmt, set_here: set[str], read: set[str]) -> None:
    """Notes names that `statement` sets whenever it is come to, and were not read before."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        value = statement.value
        read |= set(_reads(value)) - set_here if value is not None else set()
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            names = [one for one in ast.walk(target) if isinstance(one, ast.Name)]
            read |= {one.id for one in names if isinstance(one.ctx, ast.Load)} - set_here
            if value is not None:
                set_here |= {one.id for one in names if isinstance(one.ctx, ast.Store)} - read
        return
    if isinstance(statement, ast.With):
        for item in statement.items:
            read |= set(_reads(item)) - set_here
        for inner in statement.body:
            _through(inner, set_here, read)
        return
    stored = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    read |= (set(_reads(statement)) | stored) - set_here  # under a condition, or changed in place
