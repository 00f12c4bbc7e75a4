"""One call of a collective: its lane, its arguments, and what it reads of this rank.

Calls of two runs of one step are matched by *lanes*: a lane is a group, and for messages between two ranks also the direction, the
other one and the tag. Within a lane the order is the same in both, or the job itself would not work; between lanes it need not be, as
autograd runs its own threads.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from understudy.worker.collectives.interception import BETWEEN_TWO, FROM_ROOT, OPERATORS, Collective
from understudy.worker.encoding.contents import content_of

_OF_TORCH = str(Path(torch.distributed.__file__).parent)
OBJECTS = {  # functions of torch that move objects -> the argument with this rank's objects
    "all_gather_object": "obj",
    "gather_object": "obj",
    "broadcast_object_list": "object_list",
    "send_object_list": "object_list",
    "scatter_object_list": "scatter_object_input_list",
}
_UNSAID = ("timeout", "async_op", "sparse_indices", "process_group", "device_ids")  # arguments that do not matter for the result


def lane_of(collective: Collective) -> str:
    group = str(collective.group.group_name)
    if collective.operator not in BETWEEN_TWO:
        return group
    given = collective.arguments
    return f"{group} {collective.operator} {given.get('dst', given.get('src', 'any'))} tag {given.get('tag', 0)}"


def arguments_of(collective: Collective) -> tuple[tuple[str, Any], ...]:
    """Return its arguments except tensors, by name: root, reduction, sizes. Fast, because every step calls it: `shown` finds out which
    reduction it is, since torch reports that slowly.
    """
    found, given = [], collective.arguments
    for name in _plain_names(collective.operator, tuple(given)):
        value = given[name]
        if isinstance(value, list | tuple):
            if not all(isinstance(item, int) for item in value):
                continue
            value = tuple(value)
        elif isinstance(value, torch.Tensor):
            continue
        found.append((name, value))
    return tuple(found)


@functools.cache
def _plain_names(operator: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in _UNSAID and name not in OPERATORS[operator])


def shown(arguments: tuple[tuple[str, Any], ...]) -> str:
    """Return the arguments as text, for a person and for comparison."""
    return ", ".join(f"{name}={_plain(value)}" for name, value in arguments)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.ScriptObject):
        return value.op() if value._has_method("op") else "?"  # type: ignore[attr-defined]
    return list(value) if isinstance(value, tuple) else value


def settings_of(collective: Collective) -> str:
    return shown(arguments_of(collective))


def given_to(collective: Collective) -> list[torch.Tensor]:
    """Return the tensors of this member that the operation reads."""
    if collective.operator in FROM_ROOT and not _is_root(collective):
        return []
    return collective.inputs


def _is_root(collective: Collective) -> bool:
    return bool(collective.arguments["root_rank"] == collective.group.rank())


def moved_objects() -> int | None:
    """Return a digest of the objects that this rank gives, if a function of torch that moves objects issues the present collective; 0 if
    they cannot be read.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_name
        if "_object" in name and frame.f_code.co_filename.startswith(_OF_TORCH):
            content = content_of(frame.f_locals.get(OBJECTS.get(name, ""), None))
            return 0 if content.opaque else content.all
        frame = frame.f_back
    return None
