"""The location of each group of ranks, and the effect of a loss (`understudy status --topology`). As `views.py`, plain JSON values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from understudy.core.events import RankGroup
from understudy.core.forecast import forecast
from understudy.core.machine import Machine
from understudy.core.state import JobState, Node
from understudy.core.topology import FAILURE_DOMAIN, NVLINK_DOMAIN, SWITCH, nvlink_domain
from understudy.core.transitions import WorkerState
from understudy.orchestrator.views import load

MOST = 100  # losses that are considered, so that the answer for a large job is fast ...
MOST_RANKS = 2000  # ... and ranks that these would affect, in total
NODE = "node"


class NodePlace(TypedDict):
    """A node of the job, and its location in the network."""

    node: Annotated[str, Field(description="name of the node")]
    nvlink_domain: Annotated[str, Field(description="NVLink domain; empty: not known")]
    failure_domain: Annotated[str, Field(description="failure domain; the name of the node if it is its own failure domain")]
    switch: Annotated[str, Field(description="switch; empty: not known")]
    labels: Annotated[dict[str, str], Field(description="all labels of its location, including those without a meaning here")]
    ranks: Annotated[list[int], Field(description="ranks on the node")]
    spares: Annotated[int, Field(description="warm spares on the node")]
    lost: Annotated[bool, Field(description="whether it is lost, or was returned to the scheduler")]


class GroupPlace(TypedDict):
    """A group of ranks that the script has created, and its location."""

    group: Annotated[str, Field(description="dimension of its device mesh, or its description; world: all ranks")]
    ranks: Annotated[list[int], Field(description="members of the group")]
    kept_together: Annotated[bool, Field(description="whether --keep-together names it")]
    nvlink_domains: Annotated[
        dict[str, int], Field(description="number of its ranks in each NVLink domain; under an empty name if not known")
    ]
    failure_domains: Annotated[dict[str, int], Field(description="number of its ranks in each failure domain")]
    switches: Annotated[dict[str, int], Field(description="number of its ranks at each switch")]
    nodes: Annotated[dict[str, int], Field(description="number of its ranks on each node")]
    split: Annotated[bool, Field(description="whether it spans several NVLink domains although --keep-together names it")]


class RankMove(TypedDict):
    """What would happen to a rank that is lost."""

    rank: Annotated[int, Field(description="number of the rank")]
    spare: Annotated[str | None, Field(description="warm spare that takes it over; null: none can at once")]
    node: Annotated[str | None, Field(description="node of that spare")]
    splits: Annotated[bool, Field(description="whether its group would span one more NVLink domain")]


class LossForecast(TypedDict):
    """What would happen if a node, or all nodes of a domain, were lost now."""

    kind: Annotated[str, Field(description=f"`{NODE}`, `{NVLINK_DOMAIN}`, `{FAILURE_DOMAIN}` or `{SWITCH}`")]
    name: Annotated[str, Field(description="name of the node or domain")]
    nodes: Annotated[list[str], Field(description="nodes that would be lost")]
    ranks: Annotated[list[RankMove], Field(description="ranks that would be lost, and the effect on each")]
    spares_coming: Annotated[int, Field(description="spares that would become warm later, for the ranks that no warm spare takes over")]


class TopologyTable(TypedDict):
    """The location of a job in the network."""

    job: Annotated[str, Field(description="name of the job")]
    keep_together: Annotated[list[str], Field(description="groups that are to stay within one NVLink domain")]
    nodes: Annotated[list[NodePlace], Field(description="nodes in the order of their ranks")]
    groups: Annotated[
        list[GroupPlace], Field(description="groups that the script has created; empty until the first comparison of all ranks")
    ]
    losses: Annotated[
        list[LossForecast],
        Field(
            description="the effect of the loss of each node with ranks, and of each domain with several nodes; a domain with the same "
            "nodes as another one is left out"
        ),
    ]
    left_out: Annotated[int, Field(description="number of losses that were not computed, because there are too many")]


def topology_steps(machine: Machine) -> Iterator[TopologyTable]:
    """Make the table in short steps: one for each loss that is considered. Each step yields the same table, with one loss more."""
    state = machine.state
    nodes = [node for _, node in sorted(state.places.items())]
    ranks = _ranks(state)
    cases = _cases([node for node in nodes if not node.lost], ranks) if state.ended is None else []
    taken = accumulate(sum(len(ranks.get(name, [])) for name in there) for _, _, there in cases)
    looked_at = cases[: min(MOST, sum(count <= MOST_RANKS for count in taken))]
    table = TopologyTable(
        job=state.spec.job,
        keep_together=list(state.spec.keep_together),
        nodes=[_node(node, ranks.get(node.name, [])) for node in nodes],
        groups=[_group(state, group) for group in state.groups],
        losses=[],
        left_out=len(cases) - len(looked_at),
    )
    yield table
    for kind, name, there in looked_at:
        if all(node in state.nodes for node in there):
            table["losses"].append(_loss(state, kind, name, there))
            yield table


def topology_table(machine: Machine) -> TopologyTable:
    """Return the whole table at once."""
    *_, table = topology_steps(machine)
    return table


def offline_topology_table(run_dir: Path) -> TopologyTable:
    """Return the table from the journal alone. Raises `NoJournal`."""
    return topology_table(load(run_dir)[0])


def _ranks(state: JobState) -> dict[str, list[int]]:
    """Return the ranks of each node whose holder is there and not gone."""
    found: dict[str, list[int]] = {}
    for rank, name in state.ranks.items():
        worker = state.workers[name]
        if worker.state not in (WorkerState.LOST, WorkerState.RELEASED):
            found.setdefault(worker.node, []).append(rank)
    return found


def _node(node: Node, ranks: list[int]) -> NodePlace:
    return NodePlace(
        node=node.name,
        nvlink_domain=nvlink_domain(node),
        failure_domain=node.domain,
        switch=node.labels.get(SWITCH, ""),
        labels=node.labels,
        ranks=ranks,
        spares=len(node.idle(WorkerState.WARM)),
        lost=node.lost,
    )


def _group(state: JobState, group: RankGroup) -> GroupPlace:
    nodes = [state.nodes[state.holder(rank).node] for rank in group.ranks if rank in state.ranks]
    kept = group.name in state.spec.keep_together
    domains = _counted(nvlink_domain(node) for node in nodes)
    return GroupPlace(
        group=group.name,
        ranks=list(group.ranks),
        kept_together=kept,
        nvlink_domains=domains,
        failure_domains=_counted(node.domain for node in nodes),
        switches=_counted(node.labels.get(SWITCH, "") for node in nodes),
        nodes=_counted(node.name for node in nodes),
        split=kept and len(domains.keys() - {""}) > 1,
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _cases(nodes: list[Node], ranks: dict[str, list[int]]) -> list[tuple[str, str, list[str]]]:
    """Return kind, name and nodes of each loss that would take ranks: domains first, because there are fewer; the same nodes only once."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind, name_of in (
        (NVLINK_DOMAIN, nvlink_domain),
        (FAILURE_DOMAIN, lambda node: node.domain),
        (SWITCH, lambda node: node.labels.get(SWITCH, "")),
    ):
        for node in nodes:
            if name := name_of(node):
                found.setdefault((kind, name), []).append(node.name)
    several = {tuple(there): (kind, name) for (kind, name), there in reversed(found.items()) if len(there) > 1}
    cases = [(kind, name, list(there)) for there, (kind, name) in reversed(several.items())]
    cases += [(NODE, node.name, [node.name]) for node in nodes]
    return [case for case in cases if any(ranks.get(name) for name in case[2])]


def _loss(state: JobState, kind: str, name: str, nodes: list[str]) -> LossForecast:
    found = forecast(state, nodes)
    moves = [RankMove(rank=one.rank, spare=one.worker or None, node=one.node or None, splits=one.splits) for one in found.ranks]
    return LossForecast(kind=kind, name=name, nodes=nodes, ranks=moves, spares_coming=found.coming)
