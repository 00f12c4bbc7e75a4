"""Finds the names that a loop carries from one iteration to the next, by reading its source once.

A name that every iteration sets before it reads it, as `loss = step(batch)`, is not carried: a newcomer's first iteration sets it, too.
Nor is the target of the loop itself.

Known limits: only the scope that contains the loop; a name that is set under a condition, or read by a function that the loop calls,
counts as carried. Without source nothing is known.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator, Sequence
from types import FrameType

from understudy.worker.guards.loop_variables import OTHER_SCOPES, nodes_of, text_of

_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names_set_first(frame: FrameType) -> frozenset[str] | None:
    """Return the names of the scope of `frame` that the loops around its present line set before reading them; None without source."""
    return _names_set_first(*place_of(frame))


@functools.lru_cache(256)
def names_set_by_loops(file: str, first: int) -> frozenset[str]:
    """Return the names that any loop of a scope sets in each iteration before reading them. `first` as in `scope_of`."""
    scope = scope_of(file, first)
    loops = [node for node in _inside(scope) if isinstance(node, _LOOPS)] if scope is not None else []
    targets = [_names(node.target, ast.Store) for node in loops if not isinstance(node, ast.While)]
    return frozenset().union(*targets, *(_names_set_first(file, first, node.body[0].lineno) or () for node in loops))


def place_of(frame: FrameType) -> tuple[str, int, int]:
    """Return its file, the line where its function begins (of a module 0), and the present one."""
    code = frame.f_code
    of_module = not code.co_flags & inspect.CO_OPTIMIZED
    return code.co_filename, 0 if of_module else code.co_firstlineno, frame.f_lineno


@functools.lru_cache(1024)
def _names_set_first(file: str, first: int, line: int) -> frozenset[str] | None:
    scope = scope_of(file, first)
    if scope is None or not text_of(file):
        return None
    found = _targets_of_comprehensions(scope, line)
    for node in loops_around(scope, line):
        set_here: set[str] = set()
        read: set[str] = set()
        if isinstance(node, ast.While):
            read |= _names(node.test, ast.Load)
        else:
            set_here |= _names(node.target, ast.Store)
        for statement in node.body:
            _through(statement, set_here, read)
        found |= set_here - _captured(scope)
    return frozenset(found)


def read_and_set(body: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """Return the names that statements read, and those that they always set before they read them."""
    set_here, read = set[str](), set[str]()
    for statement in body:
        _through(statement, set_here, read)
    return read, set_here


def loops_around(scope: ast.AST, line: int) -> list[ast.For | ast.While | ast.AsyncFor]:
    """Return the loops around a line whose iterations a newcomer does not run: from the innermost one out to that of the job, or, where
    none looks like one, the innermost one. It runs all iterations of loops around that.
    """
    loops = [node for node in _inside(scope) if isinstance(node, _LOOPS) and node.lineno <= line <= (node.end_lineno or line)]
    inner = loops[::-1]  # the walk reaches the outer ones first
    block = int(bool(inner) and is_attempts(inner[0]))
    of_job = next((number for number, node in enumerate(inner) if not isinstance(node, ast.While) and is_of_job(node.iter)), block)
    return inner[: of_job + 1]


def _targets_of_comprehensions(scope: ast.AST, line: int) -> set[str]:
    """Return the targets of comprehensions around a line. From Python 3.12 on they are names of the scope while one runs."""
    around = [node for node in _inside(scope) if isinstance(node, _COMPREHENSIONS) and node.lineno <= line <= (node.end_lineno or line)]
    return {name for node in around for part in node.generators for name in _names(part.target, ast.Store)}


def is_of_job(iterable: ast.expr) -> bool:
    """Return whether a loop of the job is in it, as `job.batches(...)` in `enumerate(job.batches(...))`."""
    calls = [node.func for node in ast.walk(iterable) if isinstance(node, ast.Call)]
    return any(isinstance(called, ast.Attribute) and called.attr in ("batches", "steps") for called in calls)


def is_attempts(node: ast.AST) -> bool:
    """Return whether it is a loop over `job.attempts()`, whose body is run at least once."""
    return isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and getattr(node.iter.func, "attr", "") == "attempts"


def scope_of(file: str, first: int) -> ast.AST | None:
    """Return the function whose code begins at `first`, or, with 0, the module."""
    for node in nodes_of(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if first in (node.lineno, *(one.lineno for one in node.decorator_list)):
                return node
        elif isinstance(node, ast.Module) and not first:
            return node
    return None


def _captured(scope: ast.AST) -> set[str]:
    """Return the names that functions inside the scope capture: these may be called before the name is set."""
    found: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, OTHER_SCOPES) and node is not scope:
            own = list(_inside(node))
            names = [one for one in own if isinstance(one, ast.Name)]
            arguments = getattr(node, "args", None)
            mine = {one.arg for one in ast.walk(arguments) if isinstance(one, ast.arg)} if isinstance(arguments, ast.arguments) else set()
            mine |= {one.id for one in names if isinstance(one.ctx, ast.Store)}
            outer = {name for one in own if isinstance(one, ast.Global | ast.Nonlocal) for name in one.names}
            found |= ({one.id for one in names} - mine) | outer
    return found


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, OTHER_SCOPES):
            yield child
            yield from _inside(child)


def _names(node: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    """Return the names that are read or set in `node`, outside of functions."""
    nodes = [] if isinstance(node, OTHER_SCOPES) else [node, *_inside(node)]
    return {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, kind)}


def _through(statement: ast.stmt, set_here: set[str], read: set[str]) -> None:
    """Note the names that `statement` always sets, and that were not read before."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        value = statement.value
        read |= _names(value, ast.Load) - set_here if value is not None else set()
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            read |= _names(target, ast.Load) - set_here
            set_here |= _names(target, ast.Store) - read if value is not None else set()
    elif isinstance(statement, ast.With):
        for item in statement.items:
            read |= _names(item.context_expr, ast.Load) - set_here
            set_here |= _names(item.optional_vars, ast.Store) - read if item.optional_vars is not None else set()
        for inner in statement.body:
            _through(inner, set_here, read)
    elif isinstance(statement, ast.For) and is_attempts(statement):
        set_here |= _names(statement.target, ast.Store) - read
        for inner in statement.body:
            _through(inner, set_here, read)
    else:  # names in it are set under a condition, or changed in place
        read |= (_names(statement, ast.Load) | _names(statement, ast.Store)) - set_here
