"""Named points in the runtime of a worker, for tools that let something go wrong there: chaos, silent faults, tests.

The runtime reports where it is (`fire`), and passes values that move state through (`filter`). Both do nothing in a job without
listeners. A listener is a plain function; the runtime still does its own work at a point, so nothing of it is replaced.

| point | where | context |
|---|---|---|
| `setup`, `newcomer` | a worker has just got its rank, its script has not begun | |
| `begin` | an attempt begins, nothing of it has run | |
| `vote`, `vote copies` | in a vote, before copies are handed over; after that | |
| `vote agreement` | before all ranks agree | `channel`, `ballot` |
| `vote passed` | after that | |
| `optimizer` | the vote is passed, the optimizer's step has not begun | |
| `committed` | after a commit | `kind`, `function`, `result` |
| `quiesce` | the generation is over, and nothing is released yet | |
| `donate` | on a survivor, before it describes its state | |
| `attach` | before the members of a generation connect | |
| `give`, filter | on a donor: what leaves, by entry | `plans`, `member` |
| `take`, filter | on a newcomer: where it goes, by entry | `plan` |
| `transfer` | on a newcomer, when half of a donor's messages have come | |
| `taken` | on a newcomer, when all have come | `tensors` |
| `prove` | on a newcomer, before it verifies its state | |
| `verified` | on a newcomer, when it has reported that its state is right | |
| `attached` | on a newcomer, before it is a rank like the others | |
| `copy`, filter | on a survivor: the copy that it keeps of a lost rank | `store`, `rank` |
| `streams`, filter | on a newcomer: the random streams that it sets | |
| `streams set` | after that | |
| `position`, filter | on a newcomer: where its loader goes | `source` |
| `prepared` | on a spare that has been through the set-up as a rank, before it reports that | |
| `drill begin` | on a rank whose step a spare will compute in parallel, before it reports anything | |
| `drill state` | there, on the thread that sends: half of the state's messages are still to come | |
| `drill collective` | there, on the thread that sends: the first result of a collective is out | |
| `drill vote` | there, at the vote, before it waits until the state is out | |
| `drill end` | there, after the step, before it is committed | |
| `rehearsal begin` | on the spare of a drill, before it reads anything of the rank's | |
| `rehearsal state` | there, before it takes the rank's state | |
| `rehearsal first` | there, when its first attempt has reached its vote | |
| `rehearsal redo` | there, when its redo has | |
| `rehearsal over` | there, when it has reported its verdict | |
| `members`, filter | the ranks of a group that is connected again, in order | |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")

_listeners: defaultdict[str, list[Callable[..., None]]] = defaultdict(list)
_filters: defaultdict[str, list[Callable[..., Any]]] = defaultdict(list)


def fire(point: str, **context: Any) -> None:
    """Report that this thread is at `point`: the main one, where the table names no other."""
    if _listeners:
        for listener in _listeners.get(point, ()):
            listener(**context)


def filter(point: str, value: Value, **context: Any) -> Value:
    """Return the value that goes on in place of `value`: the same, if there are no listeners."""
    if _filters:
        for listener in _filters.get(point, ()):
            value = listener(value, **context)
    return value


def on(point: str, listener: Callable[..., None]) -> None:
    """Call `listener` with the point's context, by name."""
    _listeners[point].append(listener)


def on_filter(point: str, listener: Callable[..., Any]) -> None:
    """Call `listener` with the value and the point's context; it returns the value that goes on."""
    _filters[point].append(listener)
