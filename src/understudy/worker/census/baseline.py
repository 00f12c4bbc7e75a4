"""The values at the end of the set-up, with which later ones are compared to find what the script has changed.

Of large values, the first `WHOLE` bytes that a walk meets are read to the last bit, which takes some milliseconds; of others a sample.
"""

from __future__ import annotations

import inspect
import operator
import types
import weakref
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from understudy.worker.census import leaves
from understudy.worker.census.roots import FRAME, RootKey
from understudy.worker.census.sketches import Sketch, is_equal, is_same, sketch
from understudy.worker.census.walk import Path, WalkResult
from understudy.worker.encoding.codec import Unencodable, encode
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.script_files import is_of_script

WHOLE = 64 << 20
_NOTHING = object()


class Baseline:
    def __init__(self, found: WalkResult, chosen: Iterable[tuple[str, Path, Any]], frames: Collection[RootKey]) -> None:
        """Record the baseline. `chosen`: the leaves that are compared, with entry and path. `frames`: those that ran then; for later ones
        it is unknown what has changed before.
        """
        self._frames = frames
        things = ((entry, thing) for entry, (_, thing) in found.leaves.items())
        self._objects = {entry: thing for entry, thing in things if not leaves.is_bound(thing) and not leaves.is_large(thing)}
        self._large: dict[str, tuple[Any, ...]] = {}
        self._whole: dict[str, int] = {}  # up to how many bytes each of them is read whole
        self._values: dict[str, Sketch | int] = {}  # by digest, if there is no sketch
        for entry, path, value in chosen:
            if leaves.is_large(value):
                self._large[entry] = self._mark(entry, value)
            else:
                self._values[entry] = self._as_value(path, value)
        self._moving = {entry: position(thing) for entry, (_, thing) in found.moving.items()}
        self._histories = {entry: weakref.ref(thing) for entry, (_, thing) in found.histories.items()}

    def _as_value(self, path: Path, value: Any) -> Sketch | int:
        return sketch(value) or digest_bytes(self.data_of(path, value))

    def _is_later(self, path: Path) -> bool:
        return path.root[0] == FRAME and path.root not in self._frames

    def data_of(self, path: Path, value: Any) -> bytes:
        """Return the encoded value with its path, so that another worker finds it, and whether it is the object of the set-up; b"" if it
        cannot be encoded.
        """
        if leaves.is_large(value):
            return b""
        try:
            same = self._objects.get(path.entry, _NOTHING) is value
            return encode([path.encoded, same, leaves.encoded(value)], flat=True)
        except (Unencodable, ValueError, RuntimeError):  # the last: another thread of the script changes it while it is read
            return b""

    def has_changed(self, path: Path, value: Any) -> bool:
        """Return whether the value has changed since the set-up. Unknown for a value that could be encoded neither then nor now."""
        if self._is_later(path):
            self._values.setdefault(path.entry, self._as_value(path, value))
        first, now = self._values.get(path.entry), sketch(value)
        if isinstance(first, tuple) and now is not None and (is_same(first, now) or is_equal(first, now)):
            return False
        return first != digest_bytes(self.data_of(path, value))

    def is_another(self, path: Path, value: Any) -> bool:
        """Return whether a large value has changed, as far as its mark shows."""
        seen = self._mark(path.entry, value)
        return (self._large.setdefault(path.entry, seen) if self._is_later(path) else self._large.get(path.entry)) != seen

    def _mark(self, entry: str, value: Any) -> tuple[Any, ...]:
        if entry not in self._whole:
            size = leaves.size_of(value)
            self._whole[entry] = size if size <= WHOLE - sum(self._whole.values()) else 0
        return leaves.mark(value, self._whole[entry])

    def has_moved(self, path: Path, thing: Any) -> bool:
        now = position(thing)
        return self._moving.get(path.entry, now) != now

    def has_kept(self, path: Path, tensor: torch.Tensor) -> bool:
        """Return whether the tensor's history is that of the set-up."""
        first = self._histories.get(path.entry)
        return first is not None and first() is tensor


def position(thing: Any) -> str:
    """Return the position of an iterator, as far as that can be seen."""
    if isinstance(thing, types.CoroutineType):
        return "over" if thing.cr_frame is None else f"{thing.cr_frame.f_lasti}"
    if isinstance(thing, types.GeneratorType):
        frame = thing.gi_frame
        if not is_of_script(thing.gi_code.co_filename):
            return ""
        return "over" if frame is None else f"{frame.f_lasti} {inspect.getgeneratorlocals(thing).keys()} {frame.f_lineno}"
    if isinstance(thing, _BaseDataLoaderIter):
        return str(thing._num_yielded)
    length = operator.length_hint(thing, -1)
    return repr(thing) if length < 0 and "count(" in repr(thing) else str(length)
