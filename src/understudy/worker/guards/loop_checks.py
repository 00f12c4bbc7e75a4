"""Finds places where a script reads its state before a transaction: a newcomer passes there before its state has arrived.

A newcomer runs the script up to the transaction at which the job is, and only there gets its state. What it evaluates on the way,
between the top of an iteration and the transaction, or between the loops of earlier epochs, would be of its initial state. What it
saves there, or what file it writes from scratch, is refused (`worker/guards/state_reads.py`). Such places are found in the source,
once, when a loop begins, and reported before any loss.

Arguments of a transaction are computed outside of it, so they are such places, too, of every transaction of the loop.

Known limits: only the scope that contains the loop, and functions and methods that it calls, a few deep, if their source can be read.
If no transaction that every iteration reaches is found there, nothing is reported of the iteration.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import io
import os
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, FunctionType
from typing import Any

import torch
from torch import nn

from understudy.worker.guards.loop_variables import OTHER_SCOPES, inside, loop_at, nodes_of

DEPTH = 4  # functions that call each other
TRANSACTION = "__understudy_transaction__"  # the result of `job.step` and `job.section` has this attribute
_READS = ("forward", "state_dict")
_TAKE_WHOLE = (torch.save, copy.copy, copy.deepcopy)
_Scope = Mapping[str, Any]


def early_read(frame: FrameType, covered: Callable[[Any], bool]) -> str:
    """Return the first place where the scope of the loop whose iterator is being made in `frame` reads `covered` state before it may have
    arrived, as "NAME at FILE:LINE"; or "".
    """
    file, line = frame.f_code.co_filename, frame.f_lineno
    found = loop_at(file, line)
    if found is None:
        return ""
    scope, loop = found
    look = _Look(covered)
    names = {**vars(builtins), **frame.f_globals, **frame.f_locals}
    if not look.in_turn(loop.body, names, file, DEPTH):
        look = _Look(covered)  # where the transaction is is unknown, so it is unknown what comes before it
    around = _around(scope, loop)
    if not look.found and around is not None:
        for statement in around.body:
            for node in _outside(statement, loop):
                look.at(node, names, file, DEPTH)
    return look.found


def early_argument(frame: FrameType, covered: Callable[[Any], bool]) -> str:
    """Return the first such place in the loop, or the one around it, where an argument of a transaction is computed, which is outside of
    it.
    """
    file, line = frame.f_code.co_filename, frame.f_lineno
    found = loop_at(file, line)
    if found is None:
        return ""
    scope, loop = found
    look, names = _Look(covered), {**vars(builtins), **frame.f_globals, **frame.f_locals}
    calls = [node for node in inside(_around(scope, loop) or loop) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        if _is_transaction(_thing(call.func, names)):
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                for node in inside(argument, itself=True):
                    look.at(node, names, file, DEPTH)
    return look.found


def _around(scope: ast.AST, loop: ast.For) -> ast.For | ast.While | None:
    """Return the outermost loop of the scope that contains `loop`."""
    for node in inside(scope):
        if isinstance(node, ast.For | ast.While) and node is not loop and loop in inside(node):
            return node
    return None


def _outside(node: ast.AST, loop: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope without those of `loop`, and of code that looks like another loop of a job."""
    of_job = isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and getattr(node.iter.func, "attr", "") in ("batches", "steps")
    if node is not loop and not of_job and not isinstance(node, OTHER_SCOPES) and not _at_first(node):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _outside(child, loop)


class _Look:
    def __init__(self, covered: Callable[[Any], bool]) -> None:
        self.found = ""
        self._covered = covered
        self._seen: dict[tuple[object, ...], bool] = {}  # functions, with whether they contain a transaction

    def in_turn(self, body: list[ast.stmt], names: _Scope, file: str, depth: int) -> bool:
        """Search statements up to the first transaction that every iteration reaches; return whether there is one."""
        for statement in body:
            if _at_first(statement):
                continue
            if isinstance(statement, ast.If | ast.With | ast.For | ast.While | ast.Try):
                blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
                heads = [getattr(statement, name) for name in ("test", "iter") if hasattr(statement, name)]
                heads += [item.context_expr for item in getattr(statement, "items", [])]
                if any(self._expression(head, names, file, depth) for head in heads):
                    return True
                met = [self.in_turn(block, names, file, depth) for block in blocks if block]
                always = isinstance(statement, ast.With) or (isinstance(statement, ast.If) and bool(statement.orelse))
                if (always and all(met)) or (isinstance(statement, ast.For | ast.While | ast.Try) and met and met[0]):
                    return True
            elif self._expression(statement, names, file, depth):
                return True
            if isinstance(statement, ast.Continue | ast.Break | ast.Return):
                return False
        return False

    def _expression(self, node: ast.AST, names: _Scope, file: str, depth: int) -> bool:
        """Return whether an expression contains a transaction; search all of it otherwise."""
        nodes = [one for one in inside(node, itself=True) if isinstance(one, ast.Call)]
        if any(_is_transaction(_thing(one.func, names)) for one in nodes):
            return True
        return any(self.at(one, names, file, depth) for one in nodes)

    def at(self, node: ast.AST, names: _Scope, file: str, depth: int) -> bool:
        """Note a call that reads, and search plain functions and methods; return whether they contain a transaction."""
        if not isinstance(node, ast.Call):
            return False
        called = _thing(node.func, names)
        if _is_transaction(called):
            return True
        owner = _thing(node.func.value, names) if isinstance(node.func, ast.Attribute) else None
        reads = owner if isinstance(node.func, ast.Attribute) and node.func.attr in _READS else called
        whole = [one for one in node.args if self._covered(_thing(one, names))] if any(called is one for one in _TAKE_WHOLE) else []
        if whole or self._covered(reads):
            self.found = self.found or f"{ast.unparse(whole[0] if whole else node.func)} at {file}:{node.lineno}"
            return False
        if _truncates(node, called):
            self.found = self.found or f"{ast.unparse(node.func)} at {file}:{node.lineno}"
            return False
        if isinstance(called, FunctionType) and depth:
            own = getattr(owner, "__dict__", {}).values()
            first = [] if owner is None or any(called is one for one in own) else [owner]
            return self._function(called, [*first, *(_thing(one, names) for one in node.args)], _keywords(node, names), depth)
        return False

    def _function(self, called: FunctionType, arguments: list[Any], keywords: dict[str, Any], depth: int) -> bool:
        plain = inspect.unwrap(called)
        if not isinstance(plain, FunctionType) or plain.__module__.partition(".")[0] in ("torch", "understudy"):
            return False
        file = plain.__code__.co_filename
        definition = _definition(file, plain.__code__.co_firstlineno)
        if definition is None:
            return False
        parameters = [argument.arg for argument in (*definition.args.posonlyargs, *definition.args.args)]
        bound = dict(zip(parameters, arguments, strict=False)) | keywords
        key = (plain, *sorted(f"{name} {id(thing)}" for name, thing in bound.items() if thing is not None))
        if key not in self._seen:
            self._seen[key] = False  # until it is known, for one that calls itself
            self._seen[key] = self.in_turn(definition.body, {**_variables(plain), **bound}, file, depth - 1)
        return self._seen[key]


def _at_first(node: ast.AST) -> bool:
    """Return whether a statement runs only if `job.first_run`, or if not `job.newcomer`, and has nothing for all others."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    asked = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
    return any(
        getattr(one, "attr", "") == "first_run"
        or (isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not) and getattr(one.operand, "attr", "") == "newcomer")
        for one in asked
    )


def _truncates(call: ast.Call, called: Any) -> bool:
    """Return whether a call is sure to truncate a file, judging by the mode written there."""
    if called is torch.save:
        file = call.args[1] if len(call.args) > 1 else None
        return isinstance(file, ast.Constant) and str(file.value) != os.devnull
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in ("write_text", "write_bytes"):
        return True
    place = 1 if called is open or called is io.open else 0 if method == "open" else -1
    mode = call.args[place] if 0 <= place < len(call.args) else next((k.value for k in call.keywords if k.arg == "mode"), None)
    return place >= 0 and isinstance(mode, ast.Constant) and not {"w", "x"}.isdisjoint(str(mode.value)[:3])


def _is_transaction(called: Any) -> bool:
    return isinstance(called, FunctionType) and hasattr(called, TRANSACTION)


def _keywords(call: ast.Call, names: _Scope) -> dict[str, Any]:
    return {keyword.arg: _thing(keyword.value, names) for keyword in call.keywords if keyword.arg}


def _definition(file: str, line: int) -> ast.FunctionDef | None:
    """Return the definition of the function whose code begins at `line`: with its first decorator, if it has any."""
    for node in nodes_of(file):
        if isinstance(node, ast.FunctionDef) and line in (node.lineno, *(one.lineno for one in node.decorator_list)):
            return node
    return None


def _variables(function: FunctionType) -> dict[str, Any]:
    enclosed: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            enclosed[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return {**vars(builtins), **function.__globals__, **enclosed}


def _thing(node: ast.AST, names: _Scope) -> Any:
    """Return the object of an expression, if that is known without running any code of the script; else None."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _thing(node.value, names)
    if owner is None:
        return None
    if isinstance(owner, nn.Module) and node.attr in owner._modules:
        return owner._modules[node.attr]
    found = inspect.getattr_static(owner, node.attr, None)
    return found.__func__ if isinstance(found, staticmethod) else found
