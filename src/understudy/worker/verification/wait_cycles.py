"""Ranks that wait for each other: what is to be made of what each of them has published about that. Pure.

A rank waits for another one if that has not announced yet what the call of the first one needs. What was announced stays announced, and who
waits issues nothing, so a ring of such waits is there for ever once it has been seen; ranks that are only slow are in none.

Known limits: a rank counts as one, although several threads of it may wait, of which one may go on without the other: then a ring may be
seen that would have opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def ring(start: int, waits_for: Callable[[int], Iterable[int]]) -> list[int]:
    """Ranks that wait for each other in a ring to which the waits of `start` lead, in their order; none if there is no such ring.

    `waits_for` is asked once for each rank at most.
    """
    path: list[int] = []  # from `start` to where the search is
    ahead: list[list[int]] = []  # what is left to look at, of each of them
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
