"""Choose the waiting jobs that get slots.

In the order of submission, each gets slots as soon as there are enough. Later jobs may overtake one that does not fit yet. When it has
waited for `PATIENCE`, as many nodes as it needs are reserved for it, those with the least running work: no later job is placed there, so
they become free. A job that would not fit even if all jobs were over reserves nothing.

A check costs little for a job that does not fit: sums show it, and nodes are sorted only for those that do fit, and when nodes are
reserved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from understudy.core.model import JobSpec
from understudy.core.placement import Offer, Part, missing, place
from understudy.messages import service_jobs
from understudy.orchestrator.nodes import Node

PATIENCE = 600.0  # seconds
NAMED = 5  # number of jobs with reserved nodes that are listed for other jobs


class Room:
    """The free slots of some nodes: how many nodes have how many."""

    def __init__(self, slots: Iterable[int] = ()) -> None:
        self._nodes = Counter(slots)

    def change(self, slots: int, count: int) -> None:
        """Add `count` nodes with this number of slots."""
        self._nodes[slots] += count
        if not self._nodes[slots]:
            del self._nodes[slots]

    def lacks(self, spec: JobSpec) -> str:
        """Return what is missing for the job, "" if nothing is."""
        fitting = sum(count for slots, count in self._nodes.items() if slots >= spec.workers_per_node)
        return missing(spec, fitting, sum(slots * count for slots, count in self._nodes.items()))


class Queue:
    """One check of the waiting jobs: they are tried in order, and one that fits is started before the next is tried."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        """Create the queue. `nodes`: those that may get jobs."""
        self._sizes: dict[str, int] = {}  # slots by node, free or not
        self._offers: dict[str, Offer] = {}  # of nodes that are not reserved
        for node in nodes:
            self._sizes[node.hello.node] = node.hello.slots
            self._offers[node.hello.node] = node.offer()
        self._free = Room(offer.free for offer in self._offers.values())  # of nodes that are not reserved
        self._free_of_all = Room(offer.free for offer in self._offers.values())
        self._whole = Room(self._sizes.values())  # of nodes that are not reserved, as if nothing ran there
        self._idlest: list[Offer] = []  # nodes that are not reserved, those with the least running work last; empty: must be sorted
        self._keepers: dict[str, None] = {}  # jobs for which nodes are reserved
        self._answers: dict[tuple[int, int, int], str] = {}  # what jobs of a shape lack; free slots only decrease in one check
        self._hopeless: set[tuple[int, int, int]] = set()  # shapes for which no more nodes can be reserved

    def place(self, spec: JobSpec, waited: float) -> list[Part] | str:
        """Return the parts of the job, or what it waits for. `waited`: seconds."""
        shape = spec.nodes, spec.workers_per_node, spec.spares
        if shape in self._answers and (waited < PATIENCE or shape in self._hopeless):
            return self._answers[shape]
        lacking = self._free.lacks(spec)
        parts = lacking or place(spec, list(self._offers.values()))
        if not isinstance(parts, str):
            self._take(spec, parts)
            return parts
        self._answers[shape] = self._why(spec, parts)
        if waited >= PATIENCE and not self._keep(spec):
            self._hopeless.add(shape)
        return self._answers[shape]

    def _take(self, spec: JobSpec, parts: Iterable[Part]) -> None:
        """Use up the slots of these parts."""
        for part in parts:
            offer = self._offers[part.node]
            taken = offer.free - part.spares - (spec.workers_per_node if part.rank < spec.nodes else 0)
            for room in (self._free, self._free_of_all):
                room.change(offer.free, -1)
                room.change(taken, 1)
            self._offers[part.node] = Offer(offer.node, offer.domain, taken)
        self._idlest = []

    def _keep(self, spec: JobSpec) -> bool:
        """Reserve as many nodes as the job needs, first those with the least running work. Return False if all of them would not
        be enough.
        """
        if self._whole.lacks(spec):
            return False
        if not self._idlest:
            self._idlest = sorted(self._offers.values(), key=lambda o: (self._sizes[o.node] - o.free, o.node), reverse=True)
        fitting = slots = 0
        while fitting < spec.nodes or slots < spec.nodes * spec.workers_per_node + spec.spares:
            offer = self._idlest.pop()
            size = self._sizes[offer.node]
            fitting += size >= spec.workers_per_node
            slots += size
            del self._offers[offer.node]
            self._free.change(offer.free, -1)
            self._whole.change(size, -1)
        self._keepers[spec.job] = None
        return True

    def _why(self, spec: JobSpec, lacking: str) -> str:
        if self._keepers and not self._free_of_all.lacks(spec):
            more = f" and {len(self._keepers) - NAMED} more" * (len(self._keepers) > NAMED)
            return service_jobs.WAITS_FOR_OTHERS(jobs=", ".join(list(self._keepers)[:NAMED]) + more, minutes=PATIENCE / 60)
        return service_jobs.WAITS_FOR_SLOTS(reason=lacking)
