"""The part of a transaction that a device computed itself, with a fake for its events, whose streams the test writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from tests.worker.steps import step_of
from torch._C._distributed_c10d import HashStore
from torch.distributed import Work
from torch.nn.parallel import DistributedDataParallel

from understudy.common.page_view import Activity, PageView
from understudy.detectors.base import JobView, Severity
from understudy.detectors.straggler import Straggler
from understudy.links.page import PageReader, PageWriter
from understudy.worker.collectives.device_times import INTERVAL, PAUSE, DeviceTimes, Times, own_share
from understudy.worker.collectives.interception import Kernels
from understudy.worker.process.own_time import DeviceOwnTime


class Stream:
    """In place of a device's events: a clock that the test sets, and how long each collective takes from its issue."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes = 0.0
        self.here = self.on_device = True
        self.marks: list[float] = []
        self.works: list[Work] = []
        self.broken: Exception | None = None

    def usable(self) -> bool:
        return self.here

    def covers(self, tensors: Sequence[torch.Tensor]) -> bool:
        return self.on_device and bool(tensors)

    def mark(self) -> float:
        self.marks.append(self.now)
        return self.now

    def mark_end(self, work: Work, note: Callable[[Any], None]) -> None:
        if self.broken is not None:
            raise self.broken
        self.works.append(work)
        note(self.now + self.takes)

    def seconds(self, first: float, last: float) -> float:
        return last - first


class Measured:
    """A process with one device, and transactions of two collectives."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.host = 0.0
        self.times = DeviceTimes(self.stream, clock=lambda: self.host)

    def transaction(self, before: float = 1.0, between: float = 1.0, after: float = 1.0, fails: bool = False) -> torch.Tensor:
        """Seconds of computing before, between and after its collectives, after each of which the stream waits for it."""
        stream, numbers = self.stream, torch.ones(2)
        self.times.attempt(step_of())
        stream.now += before
        dist.all_reduce(numbers)
        stream.now += stream.takes + between
        dist.all_reduce(numbers)
        stream.now += stream.takes + after
        if fails:
            self.times.abandon()
        else:
            self.times.before_vote(step_of())
        return numbers


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    assert not Kernels._stack, "kernels of a measurement are left"
    dist.destroy_process_group()


def test_what_the_stream_waited_for_is_not_its_own() -> None:
    one = Measured()
    one.stream.takes = 0.5
    assert one.transaction(before=1.0, between=2.0, after=1.0).tolist() == [1.0, 1.0]
    assert one.times.take() == pytest.approx(4.0 / 5.0)
    assert one.times.take() is None, "each measurement is taken once"
    assert len(one.stream.works) == 2 and all(isinstance(work, Work) for work in one.stream.works)


def test_a_collective_that_is_not_waited_for_at_once_does_not_count_before_the_end() -> None:
    one, numbers = Measured(), torch.ones(2)
    one.stream.takes = 0.5
    one.times.attempt(step_of())
    for computed in (1.0, 2.0):
        one.stream.now += computed
        work = dist.all_reduce(numbers, async_op=True)
        assert work is not None
        work.wait()
    one.stream.now += 1.0
    one.times.before_vote(step_of())
    assert one.times.take() == pytest.approx(3.5 / 4.0)


def test_what_ddp_issues_is_not_waited_for_at_once() -> None:
    one = Measured()
    one.stream.takes = 0.25
    layers = [torch.nn.Linear(64, 64) for _ in range(3)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.001)
    model(torch.ones(1, 64)).sum().backward()  # after which DDP makes its buckets
    one.times.attempt(step_of())
    one.stream.now += 1.0
    model(torch.ones(1, 64)).sum().backward()
    one.stream.now += 1.0
    one.times.before_vote(step_of())
    assert len(one.stream.works) > 1
    assert one.times.take() == pytest.approx(1.75 / 2.0), "only the last one is known to be waited for"


def test_only_some_transactions_are_measured() -> None:
    one = Measured()
    one.transaction()
    marks = len(one.stream.marks)
    assert marks == 4
    one.host += INTERVAL * 0.9
    one.transaction()
    assert len(one.stream.marks) == marks, "it is not due"
    one.host += INTERVAL * 0.2
    one.transaction()
    assert len(one.stream.marks) == 2 * marks


def test_a_measurement_that_costs_more_is_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Measured()
    install, cost = Kernels.install, 0.02

    def slowly(kernels: Kernels) -> None:
        install(kernels)
        one.host += cost

    monkeypatch.setattr(Kernels, "install", slowly)
    one.transaction()
    marks = len(one.stream.marks)
    one.host += PAUSE * cost * 0.9
    one.transaction()
    assert len(one.stream.marks) == marks
    one.host += PAUSE * cost * 0.2
    one.transaction()
    assert len(one.stream.marks) == 2 * marks


def test_a_transaction_that_fails_gives_nothing() -> None:
    one = Measured()
    one.transaction(fails=True)
    assert one.times.take() is None
    one.host += INTERVAL
    one.transaction()
    assert one.times.take() == 1.0


def test_without_a_collective_on_the_device_nothing_is_known() -> None:
    one = Measured()
    one.stream.on_device = False
    one.transaction()
    assert one.times.take() is None


@pytest.mark.parametrize("how", ["off", "not in use"])
def test_nothing_is_measured_where_it_is_not_wanted(how: str) -> None:
    one = Measured()
    one.stream.here = False
    times = DeviceTimes(None) if how == "off" else one.times
    times.attempt(step_of())
    assert not Kernels._stack
    times.before_vote(step_of())
    assert times.take() is None and one.stream.marks == []


def test_a_device_that_cannot_be_measured_is_left_alone_from_then_on() -> None:
    one = Measured()
    one.stream.broken = RuntimeError("this Work has no future")
    assert one.transaction().tolist() == [1.0, 1.0], "the script does not notice"
    one.host += 1e6
    marks = len(one.stream.marks)
    one.transaction()
    assert len(one.stream.marks) == marks and one.times.take() is None


def test_ends_that_are_not_known_yet_give_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Measured()
    monkeypatch.setattr(Stream, "mark_end", lambda *_: None)
    one.transaction()
    assert one.times.take() is None


def test_collectives_of_a_backward_pass_are_seen_on_its_own_thread() -> None:
    one = Measured()
    seen: list[int] = []

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(gradient)
        seen.append(1)
        return gradient

    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(hook)  # type: ignore[no-untyped-call]
    one.times.attempt(step_of())
    weight.sum().backward()  # type: ignore[no-untyped-call]
    one.times.before_vote(step_of())
    assert seen and len(one.stream.works) == 1 and one.times.take() is not None


def test_only_what_the_stream_is_known_to_wait_for_counts() -> None:
    def share(*times: tuple[float, float, bool]) -> float:
        return own_share(10.0, [Times(*one) for one in times])

    assert share((2.0, 3.0, True), (5.0, 7.0, True)) == pytest.approx(0.7), "waited for one after the other"
    assert share((2.0, 3.0, False), (5.0, 7.0, False)) == pytest.approx(0.8), "whether it waited for the first one is not known"
    assert share((2.0, 9.0, False), (5.0, 7.0, False)) == pytest.approx(0.6), "in the end it waits for all"
    assert share((9.0, 12.0, False)) == pytest.approx(0.9), "what ends after the last event was not waited for"
    assert share() == own_share(0.0, [Times(0.0, 1.0, True)]) == 1.0


STEPS = st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(0.0, 5.0)), min_size=1, max_size=8)


@given(STEPS, st.floats(0.01, 5.0))
def test_the_share_of_a_stream_that_waits_for_each_collective_is_what_it_computed(steps: list[tuple[float, float]], rest: float) -> None:
    now, collectives = 0.0, []
    for computed, waited in steps:
        collectives.append(Times(now + computed, now + computed + waited, True))
        now = collectives[-1].ended
    own = sum(computed for computed, _ in steps) + rest
    assert own_share(now + rest, collectives) == pytest.approx(own / (now + rest), abs=1e-6)


@given(STEPS, st.lists(st.floats(1.0, 3.0), min_size=8, max_size=8), st.floats(0.01, 5.0))
def test_a_rank_that_is_slower_beneath_its_collectives_is_slower_by_what_others_wait_for_it(
    steps: list[tuple[float, float]], slower: list[float], rest: float
) -> None:
    """Two ranks with overlapping collectives, of which each begins when both have issued it and the one before it has ended."""
    fast = slow = ended = 0.0
    of_fast, of_slow = [], []
    for (computed, takes), factor in zip(steps, slower, strict=False):
        fast, slow = fast + computed, slow + computed * factor
        ended = max(ended, slow) + takes
        of_fast.append(Times(fast, ended, False))
        of_slow.append(Times(slow, ended, False))
    total = ended + rest
    more = (own_share(total, of_slow) - own_share(total, of_fast)) * total
    assert more == pytest.approx(slow - fast, abs=1e-6)


class Rank:
    """A worker whose transactions take a second, of which its device computes the share that is given."""

    def __init__(self, folder: Path, share: float) -> None:
        self.page = PageWriter(folder)
        self.reader = PageReader(folder)
        self.shares: list[float] = []
        self.own_time = DeviceOwnTime(self.page, lambda: self.shares.pop() if self.shares else None)
        self.own_time._looked = 0.0
        self.share = share

    def step(self, number: int) -> PageView:
        self.page.enter(Activity.RUNNING, number)
        self.own_time.look(number - 0.5)
        self.shares.append(self.share)
        self.own_time.look(number)
        self.page.committed(number, 1.0)
        return self.reader.read()


def test_each_measurement_counts_for_the_time_in_transactions_since_the_one_before(tmp_path: Path) -> None:
    rank = Rank(tmp_path / "page", 0.25)
    rank.page.enter(Activity.RUNNING, 1)
    rank.own_time.look(1.0)
    rank.page.enter(Activity.IDLE, 1)
    rank.own_time.look(11.0)
    assert rank.reader.read().looks == 0, "nothing was measured"
    rank.page.enter(Activity.RUNNING, 2)
    rank.shares.append(0.25)
    rank.own_time.look(12.0)
    found = rank.reader.read()
    assert (found.looks, found.own_running, found.own_committing, found.own_idle) == (1, 500, 0, 0), "a quarter of two seconds"


@pytest.mark.parametrize("slow", [None, 1])
def test_a_slow_device_is_a_straggler(tmp_path: Path, slow: int | None) -> None:
    ranks = {number: Rank(tmp_path / f"page{number}", 0.9 if number == slow else 0.4) for number in range(3)}
    detector, found = Straggler(), []
    for step in range(1, 400):
        for number, rank in ranks.items():
            detector.observe({f"w{number}": rank.step(step)}, float(step))
        names = {number: f"w{number}" for number in ranks}
        found += detector.look(JobView(float(step), names, roles=(0, 0, 0)))
    assert {(one.name, one.kind, one.severity) for one in found} == (set() if slow is None else {("w1", "straggler", Severity.SUSPECT)})
