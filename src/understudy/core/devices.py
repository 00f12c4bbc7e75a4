"""Devices that ranks compute on: which worker uses which device, and the taints of single devices.

A worker reports its device (`UsesDevice`). From then on a taint of that device, under any of its names, is kept separately from those of
the node: it applies to the ranks on this device, and to nothing else on the node.

    rank there, to be left   moves to a spare, which may be on another device of the same node
    spare that sets up ahead and has reached this device   is started over
    newcomer on this node    gets another local rank, since a script chooses its device by that number (`assignment.local_rank`)

A part that no worker is known to use (a disk, a link, a GPU before the first step) concerns the whole node.

Known limit: the number of devices of a node is not known here. A newcomer whose local rank has no device fails in its set-up, and the next
one is tried elsewhere.
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
    """Record that `worker` computes on that device."""
    node = state.nodes[worker.node]
    worker.device = device
    if worker.local_rank >= 0:
        node.devices[worker.local_rank] = device
    node.device_names.update(dict.fromkeys(names, device))


def taint_of(state: JobState, worker: Worker) -> Taint | None:
    """Return the taint of the worker's device; first one that asks ranks to leave."""
    found = [taint for taint in state.nodes[worker.node].device_taints.values() if worker.device and taint.device == worker.device]
    return min(found, key=lambda taint: not taint.leave, default=None)


def start_over_spares(state: JobState, node: Node) -> None:
    """Start over the spares that have set up on a device that is no longer trusted."""
    there = [spare for spare in prepared_spares(state) if spare.node == node.name and spare.local_rank in node.tainted_places()]
    for spare in there:
        fence(state, spare, moves.DEVICE_NOT_TRUSTED(device=node.devices.get(spare.local_rank, "")))
    if there and state.incident is None:
        top_up(state)
