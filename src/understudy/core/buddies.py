"""Choose the buddies of each rank: the ranks that keep a copy of its rank-local state.

Every rank has up to two buddies. They should not fail together with it: they are outside its failure domain if possible, else on other
nodes, else anywhere. Every rank keeps the same number of copies.

Theory. Sort the ranks by domain and node into a circle of n, and let the buddy of each be the one `shift` places further. Domains are
blocks of the circle. If the largest has d places, a shift of at least d leaves every block, and one of at most n - d does not reach it
again from the other side; so any shift in [d, n - d] takes every rank out of its domain. The same holds for nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

COUNT = 2


@dataclass(frozen=True, order=True)
class Place:
    """The location of a rank's worker. Places of the same `domain` (a rack, a switch) are likely to fail together."""

    domain: str
    node: str


def buddies(places: Sequence[Place], count: int = COUNT) -> list[tuple[int, ...]]:
    """Return the buddies of each rank, given the `places` of all ranks. The result is the same on every rank."""
    size = len(places)
    circle = sorted(range(size), key=lambda rank: (places[rank], rank))
    where = {rank: index for index, rank in enumerate(circle)}
    domain = max(Counter(place.domain for place in places).values())
    node = max(Counter(places).values())
    wanted = [domain, domain + node, domain + 1, node, 2 * node, node + 1, 2]
    shifts = list(dict.fromkeys(shift % size for shift in wanted if shift % size))
    shifts.sort(key=lambda shift: (not domain <= shift <= size - domain, not node <= shift <= size - node))  # stable
    return [tuple(circle[(where[rank] + shift) % size] for shift in shifts[:count]) for rank in range(size)]
