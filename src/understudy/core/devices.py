"""Devices of a node that ranks compute on: which worker is on which, and what is said of one of them only.

A worker says on which device it is (`UsesDevice`). From then on a taint of that device, by whichever of its names, is kept apart from those
of the node: it speaks of the ranks on this device, and of nothing else on the node.

    rank there, to be left   moves to a spare, which may be on the same node: on another device
    spare that sets up ahead and has come to this device   is started over
    newcomer on this node    gets another local rank, since a script goes to its device by that number (`assignment.local_rank`)

A part that no worker is known to use (a disk, a link, a GPU before the first step) speaks of the whole node, as ever.

Known limit: how many devices a node has is not known here. A newcomer whose local rank has none fails in its set-up, and the next one is
tried elsewhere.
"""

from __future__ import annotations

from understudy.core.events import UsesDevice
from understudy.core.membership import fence, top_up
from understudy.core.preparation import prepared_spares
from understudy.core.state import JobState, Node, Taint, Worker
from understudy.messages import moves


def uses(state: JobState, event: UsesDevice) -> None:
    worker = state.workers[event.worker]
    note(state, worker, event.device, event.names)


def note(state: JobState, worker: Worker, device: str, names: tuple[str, ...] = ()) -> None:
    """`worker` computes on that device."""
    node = state.nodes[worker.node]
    worker.device = device
    if worker.local_rank >= 0:
        node.devices[worker.local_rank] = device
    node.device_names.update(dict.fromkeys(names, device))


def taint_of(state: JobState, worker: Worker) -> Taint | None:
    """What is said of the device of `worker`; what asks to leave it first."""
    found = [taint for taint in state.nodes[worker.node].device_taints.values() if worker.device and taint.device == worker.device]
    return min(found, key=lambda taint: not taint.leave, default=None)


def start_over_spares(state: JobState, node: Node) -> None:
    """Spares that have set up on a device that is not trusted any more."""
    there = [spare for spare in prepared_spares(state) if spare.node == node.name and spare.local_rank in node.tainted_places()]
    for spare in there:
        fence(state, spare, moves.DEVICE_NOT_TRUSTED(device=node.devices.get(spare.local_rank, "")))
    if there and state.incident is None:
        top_up(state)
