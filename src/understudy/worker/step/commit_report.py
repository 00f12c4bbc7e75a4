"""Reports the commits of a rank: on its page, and by an event at the first commit of each generation."""

from __future__ import annotations

import time

from understudy.common.page_view import Activity
from understudy.core.events import Committed, UsesDevice
from understudy.worker.devices.device_in_use import Device, in_use
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Step
from understudy.worker.progress import Uncommitted
from understudy.worker.verification.redo import RedoProof

UNCOVERED = 4  # names that are reported


class CommitReport(Participant):
    def __init__(self, context: RankContext, redo: RedoProof) -> None:
        self._progress, self._membership, self._redo = context.progress, context.membership, redo
        self._unregistered = context.rank_state.state.unregistered
        self._reported = -1  # the newest generation in which a commit was reported
        self._device: Device | None = None  # the device that was reported last
        self._began = time.monotonic()  # when the running transaction began
        self._longest = 0.0  # seconds of a step to which the learned limit applies

    def attempt(self, step: Step) -> None:
        self._began = time.monotonic()

    def committed(self, step: Step) -> None:
        progress, membership = self._progress, self._membership
        if not membership.control.page.alone and progress.generation == self._reported:
            self._longest = max(self._longest, time.monotonic() - self._began)
        membership.control.page.committed(progress.step, self._longest)
        membership.control.page.enter(Activity.IDLE, progress.transaction)
        if membership.pending is None and self._reported != progress.generation:
            self._report(progress.generation)

    def _report(self, generation: int) -> None:
        progress, membership = self._progress, self._membership
        self._reported = generation
        recovery, progress.recovery = progress.recovery, Uncommitted()
        if recovery.attached:
            membership.phase_of(generation, "redo", recovery.attached)
        control, role = membership.control, membership.control.role
        device = in_use(role.environment if role is not None else {})
        if device.name and device != self._device:
            self._device = device
            control.send(UsesDevice(control.worker, device.name, device.others))
        done, uncovered = self._redo.report(), self._unregistered.uncovered(UNCOVERED)
        same, of, size, size_of = done.collectives
        transaction, step = progress.transaction - 1, progress.step
        compared = done.digests, (same, of), (size, size_of), done.evidence
        control.send(Committed(control.worker, generation, transaction, step, *compared, uncovered, recovery.copied))
