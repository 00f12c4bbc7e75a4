"""Places of nodes in the network, and groups of ranks that belong together.

| label            | nodes with the same value                            | effect                                              |
|------------------|------------------------------------------------------|-----------------------------------------------------|
| `nvlink-domain`  | reach each other's GPUs over NVLink (an NVL72 rack)  | groups that are kept together stay within one       |
| `failure-domain` | fail together; the same as the option of this name   | when one node fails, a spare elsewhere is preferred |
| `switch`         | are at the same switch                               | a spare there is preferred                          |

Older names: `nvlink`, and `block` (Slurm's word), are NVLink domains if no `nvlink-domain` is given. A `block` in addition to one is a
place like `switch`. Other labels are shown and have no effect.

Labels come from a node's agent (its command line, Slurm) and from the scheduler (Kubernetes), which knows the host of each pod. If both
give a label, the agent's counts.

A group is identified by its name: the dimension of a device mesh, or the description of a process group. Those that `JobSpec.keep_together`
names are kept together. A rank of several such groups is kept together with all of them, and so with the groups of their ranks
(`JobState.together`).

The NVLink domain of a group, as seen from one of its ranks (`domain_of`):

| where the other ranks are                                  | the domain                                    |
|------------------------------------------------------------|-----------------------------------------------|
| some are in the NVLink domain of this rank's last node     | that one                                      |
| none is, but some are in others                            | the one with the most; of equals the first by name |
| no other rank is left, or no node reports its place        | none: any spare may take the rank             |

Known limits: before the first comparison of all ranks, no group is known and nothing is kept together. A rank that had to leave its group's
domain does not return by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from understudy.core.events import GroupsListed, NodeLabelled, RankGroup
from understudy.core.state import JobState, Node, Worker
from understudy.core.transitions import RefusalReason, WorkerState
from understudy.messages import topology

NVLINK_DOMAIN, FAILURE_DOMAIN, SWITCH, BLOCK = "nvlink-domain", "failure-domain", "switch", "block"
NEAR = (NVLINK_DOMAIN, SWITCH, BLOCK)  # nodes with the same value are near to each other
MOST_LABELS = 64  # of a node
MOST_NAMED = 8  # nodes that a message lists
_OLDER = ("nvlink", BLOCK)  # names of NVLink domains that count if no other is given
_GONE = (WorkerState.LOST, WorkerState.RELEASED)


def meanings(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return labels with older names replaced, and without meaningless ones."""
    found = {name: value for name, value in list(given)[:MOST_LABELS] if value}
    for older in _OLDER:
        if older in found and NVLINK_DOMAIN not in found:
            found[NVLINK_DOMAIN] = found.pop(older)
    return found


def failure_domain(node: str, domain: str, labels: Mapping[str, str]) -> str:
    """Return the failure domain of a node: the one that its agent was given, else its label, else the node alone."""
    return domain or labels.get(FAILURE_DOMAIN, "") or node


def nvlink_domain(node: Node) -> str:
    """Return the NVLink domain of a node; "" if it is unknown."""
    return node.given.get(NVLINK_DOMAIN, "") or node.found.get(NVLINK_DOMAIN, "")


def domain_of(state: JobState, rank: int) -> str:
    """Return the NVLink domain in which a rank's group must stay; "" if there is none (see the table above)."""
    others = [state.holder(other) for other in state.together.get(rank, ()) if other != rank and other in state.ranks]
    if not others:
        return ""
    there = Counter(_domain(state, worker) for worker in others if worker.state not in _GONE)
    del there[""]
    home = _domain(state, state.holder(rank)) if rank in state.ranks else ""
    if home in there:
        return home
    return min(there, key=lambda domain: (-there[domain], domain), default="")


def splits(state: JobState, rank: int, node: Node) -> bool:
    """Return whether a rank's group would span several NVLink domains, or one more, if the rank were on this node."""
    domain = domain_of(state, rank)
    return bool(domain) and nvlink_domain(node) != domain


def shown(state: JobState, rank: int) -> str:
    """Return the groups that keep a rank together with others, for a message: "tp (ranks 0-3)"."""
    kept = [group for group in state.groups if group.name in state.spec.keep_together and rank in group.ranks]
    return " and ".join(map(_shown, kept))


def numbers(ranks: Iterable[int]) -> str:
    """Return ranks as people write them: "0-3,8"."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)


def listed(state: JobState, event: GroupsListed) -> None:
    """Record the groups that the script has made. The worker that holds rank 0 repeats them."""
    world = range(state.spec.world_size)
    if not all(group.ranks and all(rank in world for rank in group.ranks) for group in event.groups):
        state.ignore(event, RefusalReason.UNKNOWN)
        return
    if event.groups == state.groups:
        state.ignore(event, RefusalReason.AGAIN)
        return
    state.groups = event.groups
    kept = [group for group in event.groups if group.name in state.spec.keep_together]
    state.together = _together(kept)
    _warn(state, kept)


def labelled(state: JobState, event: NodeLabelled) -> None:
    """Record the scheduler's labels of a node."""
    node = state.nodes.get(event.node)
    if node is None:
        state.ignore(event, RefusalReason.UNKNOWN)
        return
    node.found = meanings(event.labels)


def _warn(state: JobState, kept: list[RankGroup]) -> None:
    """Warn the user of groups that are not, or cannot be, kept together."""
    names = {group.name for group in kept}
    missing = [name for name in state.spec.keep_together if name not in names]
    if missing:
        known = ", ".join(sorted({group.name for group in state.groups})) or "none"
        state.report(topology.UNKNOWN_GROUPS(names=", ".join(missing), known=known))
    domains = {group: {_domain(state, state.holder(rank)) for rank in group.ranks if rank in state.ranks} for group in kept}
    spanning = [group for group, there in domains.items() if len(there - {""}) > 1]
    if spanning:
        more = f", and so for {len(spanning) - 1} more" if spanning[1:] else ""
        where = ", ".join(sorted(domains[spanning[0]] - {""}))
        state.report(topology.GROUP_SPANS(group=_shown(spanning[0]), domains=where, more=more))
    holders = (state.holder(rank) for rank in state.together if rank in state.ranks)
    unnamed = sorted({worker.node for worker in holders if not _domain(state, worker)})
    if unnamed:
        more = f" and {len(unnamed) - MOST_NAMED} more" if len(unnamed) > MOST_NAMED else ""
        state.report(topology.NO_DOMAINS(nodes=", ".join(unnamed[:MOST_NAMED]) + more))


def _together(groups: Iterable[RankGroup]) -> dict[int, tuple[int, ...]]:
    """Return, for each rank of a group, all ranks that some chain of these groups joins; not for a rank that is alone in its groups."""
    root: dict[int, int] = {}

    def find(rank: int) -> int:
        while root.setdefault(rank, rank) != rank:
            root[rank] = root[root[rank]]
            rank = root[rank]
        return rank

    for group in groups:
        for rank in group.ranks:
            root[find(rank)] = find(group.ranks[0])
    parts: dict[int, list[int]] = {}
    for rank in sorted(root):
        parts.setdefault(find(rank), []).append(rank)
    return {rank: tuple(part) for part in parts.values() if part[1:] for rank in part}


def _domain(state: JobState, worker: Worker) -> str:
    return nvlink_domain(state.nodes[worker.node])


def _shown(group: RankGroup) -> str:
    return f"{group.name} (ranks {numbers(group.ranks)})"
