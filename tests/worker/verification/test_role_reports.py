"""When rank 0 reports roles and layouts, which voids what drills have proven: only when they have changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from understudy.core.coverage import Replicas
from understudy.core.events import Registered
from understudy.worker.encoding.messages import SharedObject
from understudy.worker.frameworks.base import Described, without
from understudy.worker.frameworks.ddp import BUCKETS, STEERING, Ddp
from understudy.worker.generation.context import RankContext
from understudy.worker.progress import Progress
from understudy.worker.verification.role_reports import RoleReports

WEIGHT = "model/parameter/weight"


class Reports(RoleReports):
    def __init__(self) -> None:
        self.sent: list[Registered] = []
        control = SimpleNamespace(worker="w0", send=self.sent.append)
        membership: Any = SimpleNamespace(control=control)
        super().__init__(RankContext(Progress(0, 3), membership, *[None] * 2))  # type: ignore[arg-type]

    def compare(self, sequences: list[int], *, described: Described | None = None, entries: tuple[str, ...] = (WEIGHT,)) -> None:
        self.heard([described or {}] * 3, sequences)
        self.report(Replicas(dict.fromkeys(entries, (0, 0, 0))))

    @property
    def roles(self) -> list[tuple[int, ...]]:
        return [event.roles for event in self.sent]


def ddp(*, forward_sync: bool, rebuilt: bool = True) -> Described:
    facts = {BUCKETS: [[[0, 1]], rebuilt], STEERING: [[[0, 1]], rebuilt, True, forward_sync, False]}
    return without(Ddp.passing, {"ddp/0/1": SharedObject((0, 1, 2), "DistributedDataParallel over Net", facts)})


def test_what_has_not_changed_is_reported_once() -> None:
    reports = Reports()
    for _ in range(3):
        reports.compare([5, 5, 5])
    assert reports.roles == [(0, 0, 0)]


def test_ranks_that_issue_something_else_have_another_role() -> None:
    reports = Reports()
    reports.compare([5, 6, 5])
    assert reports.roles == [(0, 1, 0)]


def test_a_newcomer_without_a_step_changes_no_role() -> None:
    reports = Reports()
    reports.compare([5, 5, 5])
    reports.compare([5, 0, 5])
    reports.compare([5, 5, 5])
    assert reports.roles == [(0, 0, 0)]


@pytest.mark.parametrize("changed", ["entries", "layout"])
def test_other_names_or_another_layout_are_reported(changed: str) -> None:
    reports = Reports()
    reports.compare([5, 5, 5], described=ddp(forward_sync=True, rebuilt=False))
    more = (WEIGHT, "model/parameter/bias") if changed == "entries" else (WEIGHT,)
    reports.compare([5, 5, 5], described=ddp(forward_sync=True, rebuilt=changed == "layout"), entries=more)
    assert len({event.fingerprint for event in reports.sent}) == 2


def test_an_evaluation_through_a_ddp_is_no_other_layout() -> None:
    """Its next forward does not broadcast buffers, and the one after that does."""
    reports = Reports()
    for forward_sync in (True, False, True):
        reports.compare([5, 5, 5], described=ddp(forward_sync=forward_sync))
    assert len(reports.sent) == 1
