"""Finds ranks that wait for each other, from what each of them has published. Pure.

A rank waits for another one if that has not announced yet what the call of the first one needs. An announcement is never withdrawn, and
a rank that waits issues nothing, so a ring of such waits never ends once it has been seen; ranks that are only slow are in none.

Known limits: a rank counts as one, although several threads of it may wait, of which one may go on without the other: then a ring may
be seen that would have opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def ring(start: int, waits_for: Callable[[int], Iterable[int]]) -> list[int]:
    """Return the ranks that wait for each other in a ring to which the waits of `start` lead, in their order; none if there is no such
    ring.

    `waits_for` is called at most once for each rank.
    """
    path: list[int] = []  # from `start` to where the search is
    ahead: list[list[int]] = []  # of each of them, the ranks still to be checked
    over: set[int] = set()
    path.append(start)
    ahead.append(list(waits_for(start)))
    while path:
        if not ahead[-1]:
            over.add(path.pop())
            ahead.pop()
            continue
        rank = ahead[-1].pop()
        if rank in path:
            return path[path.index(rank) :]
        if rank not in over:
            path.append(rank)
            ahead.append(list(waits_for(rank)))
    return []
