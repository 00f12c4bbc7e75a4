"""Find the target of a migration: a node, or one device of it, that an operator has named. The rank goes there or nowhere."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core.places import bounded, local_rank
from understudy.core.state import JobState, Node, Worker
from understudy.core.transitions import WorkerState
from understudy.messages import moves
from understudy.messages.base import Text

_HOLDING = (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)
INDEXED = "gpu"  # the names of devices that have an index begin with this


@dataclass(frozen=True)
class Place:
    """The spare that takes the rank, and with which local rank; -1: any."""

    spare: Worker
    local_rank: int = -1


def find(state: JobState, rank: int, to: str, device: str = "") -> Place | Text:
    """Return the place, or why the rank cannot go there now."""
    node = state.nodes.get(to)
    if node is None:
        return moves.NO_SUCH_NODE(node=to, known=", ".join(sorted(state.nodes)) or "none yet")
    if node.lost or node.taints:
        return moves.NOT_THERE(node=to, why=node.taint or "it is lost")
    local = _local_rank(node, device) if device else -1
    if device and local < 0:
        return moves.NO_SUCH_DEVICE(node=to, device=device, known=_known(node))
    if bounded(state, node) and local >= node.room:
        return moves.NO_SUCH_DEVICE(node=to, device=device, known=_known(node))
    if local in node.tainted_places():
        return moves.NOT_THERE(node=to, why=f"{device} is tainted")
    there = [worker for worker in node.workers.values() if worker.state in _HOLDING and worker.local_rank == local >= 0]
    if there:
        return moves.DEVICE_TAKEN(node=to, device=device, rank=there[0].rank)
    fitting = [spare for spare in node.idle(WorkerState.WARM) if _fits(state, spare, rank, local)]
    if not fitting:
        return moves.NO_SPARE_THERE(node=to)
    return Place(min(fitting, key=lambda spare: (not spare.ready, int(spare.name[1:]))), local)


def _known(node: Node) -> str:
    return ", ".join(sorted({*node.devices.values(), *node.device_names})) or "none"


def _fits(state: JobState, spare: Worker, rank: int, local: int) -> bool:
    node = state.nodes[spare.node]
    if spare.prepare is None:
        return local >= 0 or local_rank(state, spare, rank) >= 0
    return spare.prepare.rank == rank and spare.local_rank not in node.tainted_places() and local in (-1, spare.local_rank)


def _local_rank(node: Node, device: str) -> int:
    """Return the local rank with which a script uses that device: as a worker there has reported, else its index; -1: unknown."""
    name = node.device_of(device) or device
    if matching := [local for local, known in node.devices.items() if known == name]:
        return matching[-1]
    index = name.removeprefix(INDEXED)
    known_index = name.startswith(INDEXED) and index.isascii() and index.isdecimal() and len(index) < 5
    return int(index) if known_index and int(index) not in node.devices else -1
