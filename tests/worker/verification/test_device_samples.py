"""Digests of tensors on an accelerator: the host stands in its place, and only the order of things is real.

`tests/contract/device_samples.py` has a GPU.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from tests.integration.processes import wait_until

from understudy.worker.verification import device_samples
from understudy.worker.verification.device_samples import STRIDE, WHOLE, DeviceSample, DeviceSamples


class Device:
    """In place of `torch.cuda`."""

    def __init__(self) -> None:
        self.here = threading.Event()  # the stream has come to all samples
        self.capturing = self.fails = False

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def device(self, device: torch.device) -> AbstractContextManager[None]:
        return nullcontext()

    def stream(self, stream: Device) -> AbstractContextManager[None]:
        return nullcontext()

    def Stream(self, device: torch.device) -> Device:
        return self

    def Event(self) -> Device:
        return self

    def record(self) -> None: ...

    def query(self) -> bool:
        if self.fails:
            raise RuntimeError("an illegal memory access")
        return self.here.is_set()

    def synchronize(self) -> None:
        if not self.here.is_set():
            raise AssertionError("somebody waits for the device")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(device_samples, "_module", lambda kind: device)
    monkeypatch.setattr(device_samples, "host_memory", lambda size: torch.empty(size, dtype=torch.uint8))
    return device


@pytest.fixture
def samples(device: Device, monkeypatch: pytest.MonkeyPatch) -> DeviceSamples:
    """Nothing looks on its own."""
    monkeypatch.setattr(DeviceSamples, "_watch", lambda samples: None)
    return DeviceSamples(lambda: None)


def taken(samples: DeviceSamples, tensor: torch.Tensor, offset: int = 0) -> DeviceSample:
    sample = samples.take(tensor, offset)
    assert sample is not None
    return sample


def test_nothing_is_known_before_the_device_has_come_there(samples: DeviceSamples, device: Device) -> None:
    sample = taken(samples, torch.ones(4))
    samples.collect()
    assert sample.digest is None
    device.here.set()
    samples.collect()
    assert sample.digest is not None


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.complex128, torch.bool])
@pytest.mark.parametrize("large", [False, True])
def test_it_sees_what_was_there_when_it_was_taken(samples: DeviceSamples, device: Device, kind: torch.dtype, large: bool) -> None:
    """The collective writes into the same memory right after that."""
    device.here.set()
    tensor = torch.zeros(2 * WHOLE if large else 8, dtype=kind)
    one = taken(samples, tensor)
    tensor.fill_(1)
    other = taken(samples, tensor)
    tensor.zero_()
    again = taken(samples, tensor.clone())
    samples.collect()
    assert one.digest == again.digest != other.digest


def test_a_large_one_is_sampled_from_its_offset(samples: DeviceSamples, device: Device) -> None:
    device.here.set()
    tensor = torch.zeros(2 * WHOLE)[WHOLE:]
    kept = [taken(samples, tensor, 3)]
    tensor[2] = 1
    kept.append(taken(samples, tensor, 3))
    tensor[3 + STRIDE] = 1
    kept.append(taken(samples, tensor, 3))
    tensor[WHOLE - 1] = 1  # the last element
    kept.append(taken(samples, tensor, (WHOLE - 1) % STRIDE))
    tensor[WHOLE - 1] = 2
    kept.append(taken(samples, tensor, (WHOLE - 1) % STRIDE))
    samples.collect()
    digests = [one.digest for one in kept]
    assert digests[0] == digests[1] and len(set(digests)) == 4


def test_many_have_room_and_the_next_attempt_has_the_same(samples: DeviceSamples, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_samples, "CHUNK", 1000)
    device.here.set()
    memory = set[int]()
    for _ in range(3):
        samples.restart()
        kept = [taken(samples, torch.full((size,), number, dtype=torch.int16)) for number, size in enumerate((100, 450, 900, 1, 3))]
        samples.collect()
        assert len({one.digest for one in kept}) == len(kept)
        memory |= {one.chunk.memory.data_ptr() for one in kept}
    assert len(memory) == 4


def test_a_region_that_is_captured_is_left_alone(samples: DeviceSamples, device: Device) -> None:
    device.capturing = True
    assert samples.take(torch.ones(4), 0) is None


def test_a_thread_looks_and_says_so(device: Device) -> None:
    looks = threading.Semaphore(0)
    samples = DeviceSamples(looks.release)
    sample = taken(samples, torch.ones(4))
    looks.acquire(timeout=60)
    assert sample.digest is None
    device.here.set()
    wait_until(lambda: sample.digest is not None, "the digest")


def test_an_abort_has_it_look_at_once_and_waits_for_no_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_samples, "GAP", 3600.0)
    samples = DeviceSamples(lambda: None)
    sample = taken(samples, torch.ones(4))
    samples.hurry(60.0)
    assert sample.digest is None
    device.here.set()
    samples.hurry(60.0)
    assert sample.digest is not None


def test_a_device_that_fails_ends_no_thread(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_samples, "GAP", 0.001)
    looks = threading.Semaphore(0)
    samples = DeviceSamples(looks.release)
    device.fails = True
    sample = taken(samples, torch.ones(4))
    assert looks.acquire(timeout=60) and looks.acquire(timeout=60)
    device.fails = False
    device.here.set()
    wait_until(lambda: sample.digest is not None, "the digest")
