"""Finds, in the source, the names that the block of `job.attempts()` reads, sets, and leaves for the code after it.

Known limits: only names of the scope that contains the block, and only if the source can be read.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from understudy.worker.census.carried import names_set_first, place_of, read_and_set
from understudy.worker.guards.loop_variables import inside, loop_at, names_read_after


@dataclass(frozen=True)
class BlockNames:
    """The names of one block."""

    where: str = ""  # FILE:LINE
    bound: tuple[str, ...] = ()  # it sets them
    given: tuple[str, ...] = ()  # it reads them, and each iteration around it sets them again: its arguments
    left: tuple[str, ...] = ()  # it sets them for this iteration, and they are read after it: its results


def names_of_block(frame: FrameType) -> BlockNames:
    """Return the names of the block whose `for` statement is running in `frame`."""
    every_iteration = names_set_first(frame)
    return _names_of_block(*place_of(frame), every_iteration or frozenset(), names_read_after(frame).names)


@functools.lru_cache(256)
def _names_of_block(file: str, first: int, line: int, every_iteration: frozenset[str], after: tuple[str, ...]) -> BlockNames:
    where, found = f"{Path(file).name}:{line}", loop_at(file, line)
    if found is None:
        return BlockNames(where)
    loop = found[1]
    own = {node.id for node in inside(loop.target, itself=True) if isinstance(node, ast.Name)}
    read, set_first = read_and_set(loop.body)
    nodes = [one for statement in loop.body for one in inside(statement, itself=True) if isinstance(one, ast.Name)]
    bound = {one.id for one in nodes if isinstance(one.ctx, ast.Store)} - own
    given = (read - set_first - own) & every_iteration
    carried = read - set_first - every_iteration
    return BlockNames(where, tuple(sorted(bound)), tuple(sorted(given)), tuple(name for name in after if name in bound - carried))
