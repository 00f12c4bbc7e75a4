"""Decide whether a device failure is the fault of the device, the node or the script.

A rank whose exception names its device (`DeviceFailed`) is lost like one whose process was killed: no other rank gets its state. Earlier
failures decide what else follows. The first row that matches applies:

    | the same error at the same transaction                   | another device                  | the script's fault: the job ends |
    | ... of the same rank                                     |                                 |                                  |
    | ... of another rank, and the error is not certain to be  | of another node, or of the only | the script's fault: the job ends |
    |     the hardware's                                       | node that has ranks             |                                  |
    | any device error of another rank, within a step          | another device of the same node | the node is tainted, too         |
    | anything else                                            |                                 | the device is tainted            |

If it is the script's fault, the taints that were set for it are removed, and no further spare is used: the second device is the last.

An error that may come from the loss of a peer is blamed on no device. Its rank is lost, because its process cannot go on, and the failure
is not remembered.

A part that all ranks of a node share, such as a disk, counts as one device, and a taint of it applies to the node.

Known limit: where no device is known, as on a CPU, each worker counts as a separate device.
"""

from __future__ import annotations

from understudy.core import devices, loss, taints
from understudy.core.events import DeviceFailed
from understudy.core.model import LossCause
from understudy.core.state import DEVICE, FailedDevice, JobState, Taint, Worker
from understudy.core.transitions import WorkerState
from understudy.messages import losses, moves

KEPT = 256  # failures that are remembered
WITHIN = 1  # transactions between two failures that count as one event on a node


def device_failed(state: JobState, event: DeviceFailed) -> None:
    worker = state.workers[event.worker]
    if event.blamed:
        device = (event.computes and worker.device) or event.device  # the worker's own earlier report is more reliable
        here = FailedDevice(worker.name, worker.node, device, worker.local_rank, event.rank, event.transaction, event.error)
        training = worker.rank >= 0 and worker.state is not WorkerState.DRILLING
        if training and (before := _same_of_script(state, here, certain=event.certain)):
            _blame_script(state, event, worker, before)
            return
        _blame_device(state, here, event)
    loss.lose(state, [loss.Loss(worker, LossCause.DEVICE, event.summary, event.happened)])


def _same_of_script(state: JobState, here: FailedDevice, *, certain: bool) -> list[FailedDevice]:
    """Return the earlier failures that show that the script is at fault."""
    alike = [
        one for one in state.failed_devices if (one.error, one.transaction) == (here.error, here.transaction) and not one.is_device_of(here)
    ]
    own = [one for one in alike if one.rank == here.rank]
    if own or certain:
        return own
    alone = len({state.holder(rank).node for rank in state.ranks}) < 2
    return [one for one in alike if alone or one.node != here.node]


def _blame_script(state: JobState, event: DeviceFailed, worker: Worker, before: list[FailedDevice]) -> None:
    for one in before:
        taints.lift(state, state.nodes[one.node], DEVICE, one.device)
        taints.lift(state, state.nodes[one.node], DEVICE, "")
    why = losses.SAME_ON_ANOTHER_DEVICE(
        rank=event.rank,
        worker=worker.name,
        node=worker.node,
        step=event.step,
        error=event.error,
        before=", ".join(f"rank {one.rank} ({_place(one)})" for one in before),
        report=f"{event.summary}\n{event.traceback}".rstrip(),
    )
    state.end(1, why)


def _blame_device(state: JobState, here: FailedDevice, event: DeviceFailed) -> None:
    near = [
        one
        for one in state.failed_devices
        if one.node == here.node
        and one.rank != here.rank
        and abs(one.transaction - here.transaction) <= WITHIN
        and not one.is_device_of(here)
    ]
    state.failed_devices = [*state.failed_devices, here][-KEPT:]
    if here.device:
        if event.computes:
            devices.note(state, state.workers[here.worker], here.device)
        taints.taint(state, here.node, Taint(DEVICE, moves.DEVICE_FAILED(rank=here.rank, error=here.error), here.device))
    if near:
        reason = "; ".join(f"rank {one.rank} on {_place(one)}: {one.error}" for one in [*near, here])
        taints.taint(state, here.node, Taint(DEVICE, losses.SEVERAL_DEVICES(node=here.node, reason=reason)))


def _place(one: FailedDevice) -> str:
    return f"{one.device} of node {one.node}" if one.device else f"worker {one.worker} on node {one.node}"
