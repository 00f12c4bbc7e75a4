"""The coverage report: which losses this job survives, reported once it is known.

It follows the second full comparison, or the first one if parameters have no replica.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.core.buddies import Place, buddies
from understudy.core.coverage import Replicas
from understudy.messages import coverage as texts
from understudy.worker.state.registry import State
from understudy.worker.state.tensors import local_tensor


def coverage(replicas: Replicas, state: State, places: Sequence[Place]) -> tuple[str, bool]:
    """Return one paragraph about whose state has a replica, and whether all has one. Small rank-local values go to buddies and do not
    count there. `places`: of all ranks.
    """
    world_size = len(places)
    large = {
        name: local_tensor(tensor)
        for name, tensor in state.all_tensors().items()
        if ("/parameter/" in name or "/state/" in name) and not name.endswith("/gradient")
    }
    alone: dict[int, list[str]] = {}
    partners: dict[int, frozenset[int]] = {}
    for rank in range(world_size):
        entries = [e for e in replicas.entries(rank) if e in large]
        missing = [e for e in entries if not replicas.of(e, rank)]
        if missing:
            alone[rank] = missing
        sets = [frozenset(replicas.of(e, rank)) for e in entries]
        partners[rank] = frozenset.intersection(*sets) if sets else frozenset()
    if not alone:
        groups = sorted({tuple(sorted(partners[rank] | {rank})) for rank in range(world_size)})
        shown = "; ".join("ranks " + ", ".join(map(str, group)) for group in groups[:8]) + ("; ..." if len(groups) > 8 else "")
        holders = {rank: [replicas.of(e, rank) for e in replicas.entries(rank) if e in large] for rank in range(world_size)}
        return texts.COVERED(groups=shown, together=together(holders, places)), True
    who = f"rank {next(iter(alone))} holds" if len(alone) == 1 else f"ranks {', '.join(map(str, alone))} hold"
    example = next(iter(alone.values()))
    size = sum(large[e].numel() * large[e].element_size() for e in example) / 1e6
    return texts.UNCOVERED(who=who, count=len(example), megabytes=size, example=example[0]), False


def together(holders: dict[int, list[tuple[int, ...]]], places: Sequence[Place]) -> str:
    """Return the text about the loss of all ranks of a node, or of a failure domain, at once; nothing if there is only one node.

    `holders`: for each rank, and each part of its state, the other ranks that have it.
    """
    copies = buddies(places)
    text, nodes = "", [[-1]]
    for what, names in (("node", [place.node for place in places]), ("failure domain", [place.domain for place in places])):
        groups = {name: {rank for rank, other in enumerate(names) if other == name} for name in sorted(set(names))}
        if len(groups) == 1 or (what == "failure domain" and sorted(map(sorted, groups.values())) == nodes):
            continue
        nodes = sorted(map(sorted, groups.values()))
        bad = [name for name, lost in groups.items() if not _survived(lost, holders, copies)]
        if bad:
            ranks = ", ".join(map(str, sorted(groups[bad[0]])))
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            text += f"; the loss of {what} {bad[0]}{more} is NOT survived: no other rank has all of the state of ranks {ranks}"
        else:
            text += f"; so is that of any one {what}"
    return text


def _survived(lost: set[int], holders: dict[int, list[tuple[int, ...]]], copies: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a rank that is not lost has each part, or a copy of the rank-local values."""
    return all(not set(others) <= lost for rank in lost for others in [*holders[rank], copies[rank]])
