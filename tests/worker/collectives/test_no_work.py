"""A backend that returns no Work for a call that is not asynchronous, as NCCL does: the clients of collectives go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.worker.steps import step_of
from torch._C._distributed_c10d import HashStore, Work

from understudy.worker.collectives.interception import Collective, Kernels, work_of
from understudy.worker.collectives.setup_record import SetUpRecorder
from understudy.worker.drill.step_replay import StepRecorder
from understudy.worker.encoding.messages import DrilledCollective
from understudy.worker.guards.async_work import Works
from understudy.worker.verification.call_sequences import Sequences

ON_THE_STREAM, LATER = [2.0, 2.0], [1.0, 1.0]  # what a call that is not asynchronous gives here, and one that is


class OnTheStream(Kernels):
    """Below the others: what NCCL answers, by Gloo's sums, doubled: what was read too early is another number."""

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        result = operate()
        if collective.arguments.get("async_op", True):
            return result
        work = work_of(result)
        assert work is not None
        work.wait()
        for tensor in collective.outputs:
            tensor.mul_(2)
        return collective.answer(Work.boxed(None))  # type: ignore[arg-type]


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    below = OnTheStream()
    below.install()
    yield
    below.remove()
    dist.destroy_process_group()


def both_kinds() -> list[torch.Tensor]:
    """Return the content of the tensors after a call that is not asynchronous, and one that is."""
    first, second = torch.ones(2), torch.ones(2)
    assert dist.all_reduce(first) is None
    work = dist.all_reduce(second, async_op=True)
    assert work is not None
    work.wait()
    return [first, second]


def test_the_set_up_s_recorder_has_them(group: None) -> None:
    recorder = SetUpRecorder()
    recorder.install()
    try:
        found = both_kinds()
    finally:
        recorder.remove()
    assert [tensor.tolist() for tensor in found] == [ON_THE_STREAM, LATER]
    assert [entry.operator for entry in recorder.entries] == ["allreduce_", "allreduce_"]


def test_a_drill_gets_what_they_gave(group: None) -> None:
    given, failed = list[DrilledCollective](), list[Exception]()
    recorder = StepRecorder(given.append, failed.append)
    recorder.install()
    try:
        both_kinds()
    finally:
        recorder.remove()
    assert not failed
    assert [output.tolist() for entry in given for output in entry.outputs] == [ON_THE_STREAM, LATER]


def test_a_vote_waits_for_those_that_can_be_waited_for(group: None) -> None:
    reported = list[str]()
    works, step = Works(reported.append), step_of(closely=True)
    works.attempt(step)
    try:
        assert [tensor.tolist() for tensor in both_kinds()] == [ON_THE_STREAM, LATER]
        works.before_vote(step)
        works.returned(step)
        assert not reported
    finally:
        works.end()


def test_calls_are_counted(group: None) -> None:
    sequences: Kernels = Sequences((0, "w0"))
    sequences.install()
    try:
        assert [tensor.tolist() for tensor in both_kinds()] == [ON_THE_STREAM, LATER]
    finally:
        sequences.remove()
