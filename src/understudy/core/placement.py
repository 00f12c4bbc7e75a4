"""Choose the nodes of a submitted job: first enough of them for its ranks, then room for its spares, on other nodes if possible.

A worker takes a slot, whether it holds a rank or is a spare. Ranks go to the nodes with the fewest free slots that suffice, so that large
nodes stay free for large jobs. Spares go to nodes without ranks of the job first, and to failure domains without any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from understudy.core.model import JobSpec
from understudy.messages import forming


@dataclass(frozen=True)
class Offer:
    """An available node and its free slots."""

    node: str
    domain: str
    free: int


@dataclass(frozen=True)
class Part:
    """The share of a node in a job. From `rank` number `JobSpec.nodes` on, nodes have spares only."""

    node: str
    rank: int  # of the node in the job
    spares: int


def missing(spec: JobSpec, fitting: int, free: int) -> str:
    """Return what is missing for the job, "" if nothing is. `fitting`: nodes with room for its ranks; `free`: slots of all nodes."""
    if fitting < spec.nodes:
        nodes = f"{spec.nodes} node{'s' * (spec.nodes != 1)}"
        return forming.TOO_FEW_NODES(nodes=nodes, slots=spec.workers_per_node, fitting=fitting)
    left = free - spec.nodes * spec.workers_per_node
    return forming.TOO_FEW_SLOTS(spares=spec.spares, free=left) if left < spec.spares else ""


def place(spec: JobSpec, offers: Sequence[Offer]) -> list[Part] | str:
    """Return the parts of the job, or what is missing."""
    fitting = sorted((o for o in offers if o.free >= spec.workers_per_node), key=lambda o: (o.free, o.node))
    if lacking := missing(spec, len(fitting), sum(o.free for o in offers)):
        return lacking
    chosen = sorted(fitting[: spec.nodes], key=lambda o: o.node)
    hosts = {o.node: number for number, o in enumerate(chosen)}
    domains = {o.domain for o in chosen}
    rest = {o.node: o.free - (spec.workers_per_node if o.node in hosts else 0) for o in offers}
    where = {o.node: o for o in offers}
    spares = dict.fromkeys(hosts, 0)

    def turn(node: str) -> tuple[bool, bool, int, int, str]:
        """Distribute evenly among equals: first the node with the fewest spares so far, then the one with the most room."""
        return node in hosts, where[node].domain in domains, spares.get(node, 0), -rest[node], node

    turns = [turn(node) for node, free in rest.items() if free > 0]
    heapify(turns)
    for _ in range(spec.spares):
        best = turns[0][-1]
        rest[best] -= 1
        spares[best] = spares.get(best, 0) + 1
        if rest[best]:
            heapreplace(turns, turn(best))
        else:
            heappop(turns)
    others = sorted(node for node in spares if node not in hosts)
    ranks = hosts | {node: spec.nodes + number for number, node in enumerate(others)}
    return [Part(node, rank, spares[node]) for node, rank in sorted(ranks.items(), key=lambda item: item[1])]
