"""How a rank leaves a job when its device has failed.

The worker reports what happened and leaves at once. It does not touch the device again, because any call to a lost one can hang, those
of an exiting process included: no exit handlers, no collectives, no state for other ranks. If even the exit hangs, the agent ends the
process: the orchestrator fences every worker that reports such a failure.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable

from understudy.core.events import DeviceFailed
from understudy.messages import worker_processes
from understudy.worker.devices.device_errors import DeviceError, Kind, judge
from understudy.worker.devices.device_in_use import assumed
from understudy.worker.errors import GenerationAborted, PeerLost, UnderstudyError
from understudy.worker.process.control import Control
from understudy.worker.progress import Progress

EXIT_CODE = 71
EXPLAINED = 1.0  # seconds for the notice of a lost peer that an error may come from


def leave_if_device_failed(error: BaseException, control: Control, progress: Progress | None, aborted: Callable[[], bool]) -> None:
    """End this worker if `error`, or its cause, reports that its device has failed. `progress`: None before the script has joined.
    `aborted`: whether the end of the present generation was announced.
    """
    if isinstance(error, UnderstudyError | GenerationAborted | PeerLost):
        return
    found = judge(error)
    if found is None or not found.speaks_of_device:
        return
    blamed = not _comes_from_a_loss(found, control, aborted)
    if not blamed and not found.final:
        return  # an abort ends calls to the device in the middle, and their errors report that
    _leave(found, error, control, progress, blamed=blamed)


def _comes_from_a_loss(found: DeviceError, control: Control, aborted: Callable[[], bool]) -> bool:
    """Return whether a peer is lost, and this may be its trace: of access to each other's memory, or in a collective."""
    if found.kind is Kind.DEVICE_LOST and not found.reaches_peers:
        return False
    if found.reaches_peers:
        control.wait_for(aborted, EXPLAINED)
    return aborted()


def _leave(found: DeviceError, error: BaseException, control: Control, progress: Progress | None, *, blamed: bool) -> None:
    role = control.role
    device = found.part or assumed(role.environment if role is not None else {})
    transaction = progress.transaction if progress is not None else -1
    where = f"before transaction {transaction}" if transaction >= 0 else "in the set-up"
    if progress is not None and progress.kind:
        where = f"in {progress.running} (transaction {transaction})"
    first = (str(error).splitlines() or [""])[0]
    summary = worker_processes.DEVICE_FAILED(
        device=device or "its device", error=found.name, where=where, detail=f"{type(error).__name__}: {first}"[:2000]
    )
    text = "".join(traceback.format_exception(error))
    event = DeviceFailed(
        worker=control.worker,
        rank=role.rank if role is not None else -1,
        transaction=transaction,
        step=progress.step if progress is not None else 0,
        error=found.name,
        certain=found.kind is Kind.DEVICE_LOST,
        blamed=blamed,
        device=device,
        computes=not found.part,
        happened=time.time(),
        summary=summary,
        traceback=text[-100_000:],
    )
    control.send(event)  # first: writing may block
    print(f"{text}understudy: {summary}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)
