"""Counters in the `for` of a job's loop, which start again on a newcomer: `enumerate`, `zip` and `islice` around `job.batches` or
`job.steps`.

The iterator of a running `for` cannot be read (from Python 3.11 on), so it is found in the source. Some are not named: the job's loop
itself, which goes on where the job is; the loops around it and those in its iteration, which a newcomer runs like all ranks; and
whatever wraps it in another way (a progress bar), about which nothing is known.

Known limits: only the scope that contains the loop, by these names. What is not read in the loop is not named.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from understudy.worker.census.carried import is_of_job, loops_around, place_of, scope_of

_ZIPS = ("zip", "zip_longest")


@dataclass(frozen=True)
class Running:
    """A counter. `name` is what the loop gets from `what`, or the name of `what` if the loop gets nothing from it directly."""

    what: str  # "enumerate", "zip" or "islice"
    name: str
    source: str  # from which a zip draws it
    where: str  # FILE:LINE


def running_in(frame: FrameType) -> tuple[Running, ...]:
    """Return the counters in the loop of the job around the present line of `frame`, if there is one."""
    return _running_in(*place_of(frame))


@functools.lru_cache(1024)
def _running_in(file: str, first: int, line: int) -> tuple[Running, ...]:
    scope = scope_of(file, first)
    around = loops_around(scope, line) if scope is not None else []
    if not around or isinstance(around[-1], ast.While) or not is_of_job(around[-1].iter):
        return ()
    loop = around[-1]
    read = {node.id for inner in loop.body for node in ast.walk(inner) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return tuple(_in(loop.iter, loop.target, read, f"{Path(file).name}:{loop.iter.lineno}"))


def _in(iterable: ast.expr, target: ast.expr | None, read: set[str], where: str) -> list[Running]:
    """Search an iterable. `target`: what is set to the items of `iterable`, if that is known."""
    if not isinstance(iterable, ast.Call) or not iterable.args or not is_of_job(iterable):
        return []
    called = iterable.func.attr if isinstance(iterable.func, ast.Attribute) else getattr(iterable.func, "id", "")
    inner: list[ast.expr | None] = list(target.elts) if isinstance(target, ast.Tuple | ast.List) else []
    if called == "enumerate" and len(inner) == 2:
        own = [Running(called, name, "", where) for name in _read(inner[0], read)]
        return own + _in(iterable.args[0], inner[1], read, where)
    if called in _ZIPS:
        found: list[Running] = []
        for argument, part in zip(iterable.args, inner if len(inner) == len(iterable.args) else [None] * len(iterable.args), strict=True):
            if is_of_job(argument):
                found += _in(argument, part, read, where)
            elif not _repeats(argument) and part is not None:
                found += [Running("zip", name, ast.unparse(argument), where) for name in _read(part, read)]
        return found
    if called == "islice":
        return [Running(called, called, "", where), *_in(iterable.args[0], target, read, where)]
    return [one for argument in iterable.args for one in _in(argument, target, read, where)]


def _read(target: ast.expr | None, read: set[str]) -> list[str]:
    names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)] if target is not None else []
    return [name for name in names if name in read][:1]


def _repeats(argument: ast.expr) -> bool:
    """Return whether every item is the same, as from `itertools.repeat`."""
    return isinstance(argument, ast.Call) and (getattr(argument.func, "attr", "") or getattr(argument.func, "id", "")) == "repeat"
