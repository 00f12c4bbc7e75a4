"""Which of the jobs that wait gets slots.

In the order in which they came, each gets slots as soon as there are enough. One that does not fit yet is passed by later ones that do.
When it has waited for `PATIENCE`, as many nodes as it needs are kept for it, those on which least runs: no later job is placed there, so
they become free in time. One that would not fit even if all jobs were over keeps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.core.model import JobSpec
from understudy.core.placement import Part, place
from understudy.messages import service_jobs
from understudy.orchestrator.nodes import Node

PATIENCE = 600.0  # seconds


class Queue:
    """Of one look at the jobs that wait: they are asked about in their order, and one that fits is started before the next."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """`nodes`: those that may get jobs."""
        self._nodes = nodes
        self._kept: dict[str, str] = {}  # nodes that are kept for a job, and which
        self._missing: dict[tuple[int, int, int], str] = {}  # what jobs of a shape lack; there is less and less in one look
        self._hopeless: set[tuple[int, int, int]] = set()  # shapes for which no more nodes can be kept

    def place(self, spec: JobSpec, waited: float) -> list[Part] | str:
        """Return the parts of the job, or what it waits for. `waited`: seconds."""
        shape = spec.nodes, spec.workers_per_node, spec.spares
        if shape in self._missing and (waited < PATIENCE or shape in self._hopeless):
            return self._missing[shape]
        others = [node for node in self._nodes if node.hello.node not in self._kept]
        parts = place(spec, [node.offer() for node in others])
        if not isinstance(parts, str):
            return parts
        self._missing[shape] = self._why(spec, parts)
        if waited >= PATIENCE and not self._keep(spec, others):
            self._hopeless.add(shape)
        return self._missing[shape]

    def _keep(self, spec: JobSpec, nodes: Sequence[Node]) -> bool:
        """Keep as many nodes as the job needs, those first on which least runs now. False: all of them would not be enough."""
        kept: list[str] = []
        fitting = slots = 0
        for node in sorted(nodes, key=lambda node: (node.hello.slots - node.free(), node.hello.node)):
            kept.append(node.hello.node)
            fitting += node.hello.slots >= spec.workers_per_node
            slots += node.hello.slots
            if fitting >= spec.nodes and slots >= spec.world_size + spec.spares:
                self._kept |= dict.fromkeys(kept, spec.job)
                return True
        return False

    def _why(self, spec: JobSpec, missing: str) -> str:
        if self._kept and not isinstance(place(spec, [node.offer() for node in self._nodes]), str):
            return service_jobs.WAITS_FOR_OTHERS(jobs=", ".join(dict.fromkeys(self._kept.values())), minutes=PATIENCE / 60)
        return service_jobs.WAITS_FOR_SLOTS(reason=missing)
