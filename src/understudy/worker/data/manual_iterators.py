"""Finds loaders that a script draws from by hand (`iter`, `next`): their position is not known, so a newcomer would start at the
beginning.

The class of a loader is watched for iterators that are made outside of `job.batches` and `job.iterator`. An evaluation may iterate over
a loader inside one section, which leaves nothing; an iterator that still lives where a transaction begins is one that the script goes
on with. That of a registered loader is refused; another one is reported, if it has lived since before the iteration.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from understudy.worker import patches

_made: list[tuple[weakref.ref[Any], weakref.ref[Any], int]] = []  # loader, iterator, iterations of loops of the job that had begun by then
_tops = 0
_watched: set[type] = set()
_by_us = False


def watch() -> None:
    """Note iterators of DataLoaders from now on."""
    classes: list[type] = [DataLoader]
    stateful = sys.modules.get("torchdata.stateful_dataloader")
    if stateful is not None:
        classes.append(stateful.StatefulDataLoader)
    for kind in classes:
        if kind not in _watched and "__iter__" in vars(kind):
            _watched.add(kind)
            patches.wrap(kind, "__iter__", _noted, "iterators that a script moves by hand are reported")


def _noted(make: Any, loader: Any) -> Any:
    iterator = make(loader)
    if not _by_us:
        _made[:] = [pair for pair in _made if pair[1]() is not None]
        _made.append((weakref.ref(loader), weakref.ref(iterator), _tops))
    return iterator


@contextmanager
def by_a_loop() -> Iterator[None]:
    """Mark the making of an iterator whose position is known."""
    global _by_us
    before, _by_us = _by_us, True
    try:
        yield
    finally:
        _by_us = before


def by_hand(loaders: Mapping[str, Any]) -> str:
    """Return the name of a loader from which the script has made an iterator that is in use, or ""."""
    for loader, _ in _in_use():
        for name, known in loaders.items():
            if known is loader:
                return name
    return ""


def at_top() -> None:
    """Note the begin of an iteration of a loop of the job."""
    global _tops
    _tops += 1


def carried() -> bool:
    """Return whether an iterator that the script has made is in use since before this iteration: a newcomer's would begin in it."""
    return any(tops < _tops for _, tops in _in_use())


def _in_use() -> Iterator[tuple[Any, int]]:
    for made_of, made, tops in _made:
        loader, iterator = made_of(), made()
        if iterator is None or (getattr(loader, "_iterator", None) is iterator and getattr(iterator, "_finished", True)):
            continue  # a loader may keep an iterator that has reached its end: StatefulDataLoader, and one with persistent workers
        yield loader, tops
