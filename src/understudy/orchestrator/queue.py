"""Which of the jobs that wait gets slots.

In the order in which they came, each gets slots as soon as there are enough. One that does not fit yet is passed by later ones that do.
When it has waited for `PATIENCE`, the nodes that it will get are kept for it: no later job is placed there, so they become free in time.
One that would not fit even if all jobs were over keeps nothing.
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
        if waited >= PATIENCE:
            whole = place(spec, [node.offer(whole=True) for node in others])
            if isinstance(whole, str):
                self._hopeless.add(shape)
            else:
                self._kept |= {part.node: spec.job for part in whole}
        return self._missing[shape]

    def _why(self, spec: JobSpec, missing: str) -> str:
        if self._kept and not isinstance(place(spec, [node.offer() for node in self._nodes]), str):
            return service_jobs.WAITS_FOR_OTHERS(jobs=", ".join(dict.fromkeys(self._kept.values())), minutes=PATIENCE / 60)
        return service_jobs.WAITS_FOR_SLOTS(reason=missing)
