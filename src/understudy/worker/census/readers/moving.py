"""Readers for things that move on: iterators, generators, files, hashes, and variables of threads and contexts."""

from __future__ import annotations

import contextvars
import gc
import itertools
import os
import threading
import types
from collections.abc import Iterator
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from understudy.worker.census.leaves import FIXED
from understudy.worker.census.readers.reading import NOTHING, Part, Reading, attributes, text_mark
from understudy.worker.census.walk import Path, attributes_of
from understudy.worker.script_files import is_of_script

_HASHES = ("_hashlib", "_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_blake2", "hmac")
_PLACES = 512  # positions of an iterator that are read


def read_iterator(path: Path, iterator: Any) -> Reading:
    """Return what a copy of an iterator would need: its sources, and its position in them."""
    try:
        _, *state = iterator.__reduce__()
    except Exception:  # it cannot be copied, or (from Python 3.14 on) none of its kind can
        return Reading(repr(iterator) if type(iterator) is itertools.count else None, referents(path, iterator))
    parts = _flat(state)
    stands = text_mark(repr([part for part in parts if type(part) in FIXED]))
    return Reading(stands, tuple((path.then("place", f"{n} source"), part) for n, part in enumerate(parts) if type(part) not in FIXED))


def _flat(state: Any) -> list[Any]:
    """Return some of the parts of nested tuples."""
    found: list[Any] = []
    for part in state:
        found += _flat(part) if type(part) is tuple else [part]
        if len(found) > _PLACES:
            return found[:_PLACES]
    return found


def read_loader_iterator(path: Path, iterator: _BaseDataLoaderIter) -> Reading:
    """Return how many batches were drawn."""
    return Reading(iterator._num_yielded)


def read_generator(path: Path, generator: Any) -> Reading:
    """Return the position of a generator or coroutine of the script, and its variables."""
    kind = "gi" if isinstance(generator, types.GeneratorType) else "cr"
    frame, code = getattr(generator, f"{kind}_frame"), getattr(generator, f"{kind}_code")
    if frame is None or not is_of_script(code.co_filename):
        return Reading(frame is None)
    return Reading(frame.f_lasti, tuple((path.then("attribute", name), value) for name, value in frame.f_locals.items()))


def read_in_memory(path: Path, file: Any) -> Reading:
    """Return the content of a file in memory, and its position."""
    if file.closed:
        return Reading("closed")
    content = file.getvalue()
    return Reading((file.tell(), text_mark(content)))


def read_file(path: Path, file: Any) -> Reading:
    """Return the position of a file that is read; text is read ahead by some thousand characters."""
    if type(file).__module__ not in ("_io", "io"):  # its own methods may do anything
        return NOTHING
    try:
        if file.closed or not file.readable() or file.isatty():
            return NOTHING
        return Reading(os.lseek(file.fileno(), 0, os.SEEK_CUR))
    except (OSError, ValueError):
        return NOTHING


def read_hash(path: Path, thing: Any) -> Reading | None:
    """Return the present value of a hash."""
    if type(thing).__module__ not in _HASHES or not thing.digest_size:
        return None
    return Reading(thing.hexdigest())


def read_thread_local(path: Path, thing: threading.local) -> Reading:
    """Return the variables of this thread."""
    return Reading(None, attributes_of(path, thing))


def read_context_variable(path: Path, variable: contextvars.ContextVar[Any]) -> Reading:
    """Return the value in this context."""
    return Reading(None, attributes(path, value=variable.get(None)))


def referents(path: Path, thing: Any) -> Iterator[Part]:
    """Return the references of an object that the garbage collector knows."""
    for number, part in enumerate(gc.get_referents(thing)):
        if not isinstance(part, types.ModuleType) and part is not type(thing):
            yield path.then("place", f"{number} {type(part).__qualname__}"), part
