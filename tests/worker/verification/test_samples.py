"""Digests of what goes into collectives: which elements they see, on the host and from an accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from understudy.worker.verification import samples
from understudy.worker.verification.samples import DeviceSample, sampled


@given(some.integers(0, 2**31), some.integers(0, samples.STRIDE - 1))
def test_a_sample_begins_at_its_offset(seed: int, offset: int) -> None:
    torch.manual_seed(seed)
    tensor = torch.randn(3000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "WHOLE", 4000)
        before = sampled(tensor, offset)
        place = int(torch.randint(0, 3000, ()))
        tensor[place] += 1
        assert (sampled(tensor, offset) != before) == (place % samples.STRIDE == offset)


def test_rows_whose_features_lie_at_multiples_of_64_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "WHOLE", 1)
    one, other = torch.randn(200, 1024), torch.randn(200, 1024)
    for tensor in (one, other):
        tensor[:, ::64] = 0
    assert sampled(one, 0) != sampled(other, 0)


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")])
def test_what_cannot_be_read_is_compared_by_its_shape_only(tensor: torch.Tensor) -> None:
    assert sampled(tensor, 0) is None


# -- an accelerator, of which only the order of things is real ---------------------------------------------------------------------------


class Streams:
    """In place of `torch.cuda`: what is put on a stream happens when that stream is let go on."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.arrived = False

    def current_stream(self, device: torch.device) -> str:
        return "the script's"

    def Stream(self, device: torch.device) -> Streams:
        return self

    def Event(self) -> Streams:
        return self

    def wait_stream(self, other: str) -> None:
        self.order.append(f"waits for {other}")

    @contextmanager
    def stream(self, stream: Streams) -> Iterator[None]:
        self.order.append("on its own")
        yield
        self.order.append("back")

    def record(self, stream: Streams) -> None:
        self.order.append("noted")

    def query(self) -> bool:
        return self.arrived

    def synchronize(self) -> None:
        self.arrived = True


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    monkeypatch.setattr(samples, "_host_memory", torch.empty_like)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    return Streams()


def sample(tensor: torch.Tensor, streams: Any, offset: int = 0) -> DeviceSample:
    return DeviceSample(tensor, offset, streams)


def test_the_host_waits_for_nothing_that_it_has_not_asked_for(streams: Streams) -> None:
    one = sample(torch.ones(4), streams)
    assert streams.order == ["waits for the script's", "on its own", "noted", "back"]
    assert one.value(wait=False) is None
    found = one.value(wait=True)
    assert found is not None and found == one.value(wait=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.complex128, torch.bool])
@pytest.mark.parametrize("large", [False, True])
def test_it_sees_what_was_there_when_it_was_taken(streams: Streams, dtype: torch.dtype, large: bool) -> None:
    """The collective writes into the same memory right after that."""
    tensor = torch.zeros(2 * samples.WHOLE_ON_DEVICE if large else 8, dtype=dtype)
    one = sample(tensor, streams)
    tensor.fill_(1)
    other = sample(tensor, streams)
    tensor.zero_()
    again = sample(tensor.clone(), streams)
    assert one.value(wait=True) == again.value(wait=True) != other.value(wait=True)


def test_a_large_one_is_sampled_from_its_offset(streams: Streams) -> None:
    tensor = torch.zeros(samples.WHOLE_ON_DEVICE)
    before = sample(tensor, streams, 3).value(wait=True)
    tensor[2] = 1
    assert sample(tensor, streams, 3).value(wait=True) == before
    tensor[3 + samples.STRIDE] = 1
    assert sample(tensor, streams, 3).value(wait=True) != before
