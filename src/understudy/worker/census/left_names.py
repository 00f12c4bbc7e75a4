"""Names that a loop of the job has set and the script reads after it. A newcomer that joins after the loop does not run it, and is given
the values that its rank had there.

They are noted where the loop ends, handed over right before the next transaction, and included in each copy of the rank from then on.
For a rank that was lost between its last transaction in the loop and that one, the last batch is drawn again, and anything else is
taken from another rank, and reported: it may be the same there, as a step number, or not, as a loss.

Known limits: `guards.loop_variables` finds the names. A list that existed before the loop is left alone, because other names may refer
to it. Of the oldest loops, what exceeds `BOUND` is forgotten: a newcomer has the value of a later loop there.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from types import FrameType
from typing import Any

from understudy.messages import encoding
from understudy.worker.census import leaves, roots
from understudy.worker.census.walk import is_number
from understudy.worker.encoding.codec import Unencodable
from understudy.worker.errors import BadMessage
from understudy.worker.guards.loop_variables import ReadAfter
from understudy.worker.script_files import is_of_script

BOUND = 4 << 10  # bytes of all


def script_frame() -> FrameType | None:
    """Return the innermost frame of the script's own code, around the caller."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_of_script(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _table(frame: FrameType) -> roots.Table:
    return roots.Locals(frame) if frame.f_code.co_flags & inspect.CO_OPTIMIZED else roots.ModuleNames(frame.f_globals)


def names_in(frame: FrameType) -> Mapping[str, Any]:
    """Return the names of a scope, with their present values."""
    return dict(_table(frame).items())


def put_all(frame: FrameType, values: Mapping[str, Any]) -> None:
    """Bind names of a scope."""
    table = _table(frame)
    for name, value in values.items():
        table.put(name, value)


def take(left: MutableMapping[str, bytes], loop: int, frame: FrameType, names: Collection[str], new: Collection[str]) -> list[str]:
    """Note in `left` the values of the `names` of the scope of `frame` after this loop. Returns those that cannot be noted although they
    are `new` in the loop: on a newcomer they would be missing.
    """
    there, missed = _table(frame).items(), []
    for name in names:
        if name not in there:
            continue
        data = _encoded(there[name]) if name in new or leaves.is_bound(there[name]) else b""
        if 0 < len(data) <= BOUND:
            left[f"{loop}:{name}"] = data
        elif name in new:
            missed.append(name)
    while sum(len(key) + len(data) for key, data in left.items()) > BOUND:
        key = next(iter(left))
        del left[key]
        before, _, name = key.partition(":")
        if before == str(loop) and name in new:
            missed.append(name)
    return missed


def _encoded(value: object) -> bytes:
    try:
        return leaves.encoded(value) if leaves.is_leaf(value) else b""
    except (Unencodable, ValueError, RuntimeError):
        return b""


def put(
    loop: int, frame: FrameType, read_after: ReadAfter, own: Mapping[str, bytes], others: Mapping[str, bytes], last: Sequence[Any]
) -> list[str]:
    """Set the names on a newcomer that skips this loop. `last`: the last item of the loop, if that is known. Returns the names whose
    values are not known to be those of this rank. Raises `BadMessage`.
    """
    table, doubtful, drawn = _table(frame), [], dict[str, Any]()
    if last and read_after.targets:
        parts = last[0] if read_after.in_parts else last
        drawn = dict(zip(read_after.targets, parts, strict=False)) if isinstance(parts, list | tuple) else {}
    for name in read_after.names:
        key = f"{loop}:{name}"
        if name in drawn and key not in own:
            table.put(name, drawn[name])
            continue
        data = own.get(key) or others.get(key) or _later(own, loop, name)
        if data is None:
            continue
        if key not in own:
            doubtful.append(name)
        try:
            value = leaves.put_into(None, data)
        except (LookupError, ValueError, TypeError, RuntimeError) as error:
            raise BadMessage(encoding.MALFORMED_NAME(name=name, error=repr(error))) from error
        table.put(name, value)
    return doubtful


def _later(left: Mapping[str, bytes], loop: int, name: str) -> bytes | None:
    """Return what the nearest later loop has left under this name."""
    numbers = [number for number, _, known in (key.partition(":") for key in left) if known == name and is_number(number)]
    later = min((number for number in numbers if int(number) > loop), key=int, default=None)
    return left[f"{later}:{name}"] if later is not None else None
