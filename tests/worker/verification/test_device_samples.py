"""Digests of tensors on an accelerator: the host takes its place, so that samples arrive at once, unless a test delays one.
`tests/contract/device_samples.py` has a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
import torch

from understudy.worker.verification import device_samples
from understudy.worker.verification.device_samples import STRIDE, WHOLE, DeviceSample, DeviceSamples


class Device:
    """In place of `torch.cuda`."""

    def __init__(self) -> None:
        self.current: torch.device | None = None
        self.capturing = False
        self.allocated = 0  # how often memory was allocated on a stream of its own and waited for

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        self.current = device
        yield
        self.current = None

    def stream(self, stream: Device) -> AbstractContextManager[None]:
        return nullcontext()

    def Stream(self, device: torch.device) -> Device:
        assert self.current == device
        return self

    def synchronize(self) -> None:
        self.allocated += 1


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(device_samples, "_module", lambda kind: device)
    monkeypatch.setattr(device_samples, "host_memory", lambda size: torch.empty(size, dtype=torch.uint8))
    return device


@pytest.fixture
def samples(device: Device) -> DeviceSamples:
    return DeviceSamples()


def take(samples: DeviceSamples, tensor: torch.Tensor, offset: int = 0) -> DeviceSample:
    sample = samples.take(tensor, offset)
    assert sample is not None
    return sample


def hold_back(sample: DeviceSample) -> None:
    sample._flags[sample._flag] = 0


def test_nothing_is_known_before_it_has_arrived(samples: DeviceSamples) -> None:
    sample = take(samples, torch.ones(4))
    known = sample.value()
    hold_back(sample)
    assert known is not None and sample.value() is None


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.complex128, torch.bool])
@pytest.mark.parametrize("large", [False, True])
def test_it_sees_what_was_there_when_it_was_taken(samples: DeviceSamples, kind: torch.dtype, large: bool) -> None:
    """The collective writes into the same memory right after that."""
    tensor = torch.zeros(2 * WHOLE if large else 8, dtype=kind)
    one = take(samples, tensor)
    tensor.fill_(1)
    other = take(samples, tensor)
    tensor.zero_()
    again = take(samples, tensor.clone())
    assert one.value() == again.value() != other.value()


def test_a_large_one_is_sampled_from_its_offset(samples: DeviceSamples) -> None:
    tensor = torch.zeros(2 * WHOLE)[WHOLE:]
    before = take(samples, tensor, 3)
    tensor[2] = 1
    assert take(samples, tensor, 3).value() == before.value()
    tensor[3 + STRIDE] = 1
    assert take(samples, tensor, 3).value() != before.value()
    last = (WHOLE - 1) % STRIDE
    before = take(samples, tensor, last)
    tensor[WHOLE - 1] = 1
    assert take(samples, tensor, last).value() != before.value()


def test_many_have_room_and_the_next_attempt_has_the_same(samples: DeviceSamples, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_samples, "CHUNK", 1000)
    for _ in range(3):
        samples.restart()
        kept = [take(samples, torch.full((size,), number, dtype=torch.int16)) for number, size in enumerate((100, 450, 900, 1, 3))]
        assert len({one.value() for one in kept}) == len(kept)
    assert device.allocated == 5, "the flags, and four chunks"


def test_memory_into_which_something_is_on_its_way_is_not_used_again(samples: DeviceSamples) -> None:
    sample = take(samples, torch.ones(4))
    known = sample.value()
    hold_back(sample)
    samples.restart()
    assert take(samples, torch.zeros(4)).value() not in (None, known)
    sample._flags[sample._flag] = 1  # now it has arrived
    assert sample.value() == known


@pytest.mark.parametrize("limit", ["MOST", "LARGEST"])
def test_of_too_many_the_rest_is_not_taken(samples: DeviceSamples, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(device_samples, "CHUNK", 32)
    monkeypatch.setattr(device_samples, limit, {"MOST": 4, "LARGEST": 64}[limit])
    found = [samples.take(torch.full((4,), float(number)), 0) for number in range(6)]
    assert [one is None for one in found] == [False] * 4 + [True] * 2
    samples.restart()
    assert samples.take(torch.ones(4), 0) is not None


def test_an_evaluation_without_gradients_leaves_memory_that_training_can_use(samples: DeviceSamples) -> None:
    with torch.inference_mode():
        before = take(samples, torch.ones(4)).value()
    assert take(samples, torch.ones(4)).value() == before
    with torch.inference_mode():
        assert take(samples, torch.ones(4)).value() == before


def test_a_region_that_is_captured_is_left_alone(samples: DeviceSamples, device: Device) -> None:
    device.capturing = True
    assert samples.take(torch.ones(4), 0) is None
