"""Digests of tensors on accelerators: of a sample of their elements, as they were when a collective was issued.

The elements are picked by one small kernel on the stream that issues the collective. A thread looks now and then which of them are there,
brings them to the host on a stream of its own, and makes their digests. So no step waits for the device. An abort asks that thread and
touches nothing of the device itself: another thread may hold the driver's locks while it waits for the collective that is to be aborted.

Known limits: what a tensor holds is known only once its stream has come there, so a rank that is lost before that has told less. Memory
for samples is kept: `CHUNK` bytes on the device and as much on the host, or a multiple of that.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
import xxhash

WHOLE = 1 << 16  # bytes of one tensor that are read in full
# Between two elements of a sample. A prime: with 64, gradients of layers whose features lie at multiples of it had the same digest.
STRIDE = 509
CHUNK = 4 << 20  # bytes; of 25 MB a sample takes 49 kB
GAP = 0.02  # seconds from one look to the next
_ALIGNED = 16  # bytes, the largest element


class DeviceSample:
    """One of them. `digest` is there when it has come to the host."""

    __slots__ = ("begin", "chunk", "digest", "end", "taken")

    def __init__(self, chunk: _Chunk, begin: int, end: int, taken: Any) -> None:
        """`begin`, `end`: bytes of `chunk`. `taken`: an event."""
        self.chunk, self.begin, self.end, self.taken = chunk, begin, end, taken
        self.digest: int | None = None


class _Chunk:
    def __init__(self, size: int, device: torch.device) -> None:
        self.memory = torch.empty(size, dtype=torch.uint8, device=device)
        self.host = host_memory(size)
        self.read = self.host.numpy().data
        self._views: dict[torch.dtype, torch.Tensor] = {}

    def slot(self, kind: torch.dtype, begin: int, count: int) -> torch.Tensor:
        """Room for `count` elements from byte `begin` on."""
        if (view := self._views.get(kind)) is None:
            view = self._views[kind] = self.memory.view(kind)
        return view.narrow(0, begin // kind.itemsize, count)


class _Device:
    """What samples need on one device."""

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module, self._device = module, device
        self._chunks: list[_Chunk] = []
        self._stream: Any = None
        self.restart()

    def restart(self) -> None:
        self._chunk, self._used = 0, 0

    def take(self, tensor: torch.Tensor, offset: int) -> DeviceSample:
        plain = tensor.detach().contiguous()
        count = plain.numel()
        if plain.nbytes <= WHOLE:
            source = plain.view(-1)
        else:
            count = (count - offset + STRIDE - 1) // STRIDE
            source = plain.as_strided((count,), (STRIDE,), plain.storage_offset() + offset)
        size = count * plain.element_size()
        chunk = self._room(size)
        begin = self._used
        self._used += -(-size // _ALIGNED) * _ALIGNED
        chunk.slot(plain.dtype, begin, count).copy_(source)
        taken = self._module.Event()
        taken.record()
        return DeviceSample(chunk, begin, begin + size, taken)

    def _room(self, size: int) -> _Chunk:
        while self._chunk < len(self._chunks):
            chunk = self._chunks[self._chunk]
            if self._used + size <= chunk.memory.numel():
                return chunk
            self._chunk, self._used = self._chunk + 1, 0
        self._chunks.append(_Chunk(max(CHUNK, -(-size // _ALIGNED) * _ALIGNED), self._device))
        return self._chunks[-1]

    def collect(self, samples: Iterable[DeviceSample]) -> None:
        """Make the digests of those that are there."""
        with self._module.device(self._device):  # else a thread that has used none gets a context on the first one
            here = [one for one in samples if one.digest is None and one.taken.query()]
            if not here:
                return
            by_chunk = defaultdict[_Chunk, list[DeviceSample]](list)
            for one in here:
                by_chunk[one.chunk].append(one)
            self._stream = self._stream or self._module.Stream(device=self._device)
            with self._module.stream(self._stream):
                for chunk, group in by_chunk.items():
                    begin, end = min(one.begin for one in group), max(one.end for one in group)
                    chunk.host[begin:end].copy_(chunk.memory[begin:end], non_blocking=True)
                self._stream.synchronize()
        for one in here:
            one.digest = xxhash.xxh3_64_intdigest(one.chunk.read[one.begin : one.end])


class DeviceSamples:
    """Those of the running attempt. Taken by one thread at a time."""

    def __init__(self, come: Callable[[], None]) -> None:
        """`come`: called on the thread that brings samples, after each look."""
        self._come = come
        self._devices: dict[torch.device, _Device] = {}
        self._samples: list[DeviceSample] = []  # not all of them known
        self._collecting = threading.Lock()
        self._more, self._now, self._looked = threading.Event(), threading.Event(), threading.Event()
        self._watching = False

    def take(self, tensor: torch.Tensor, offset: int) -> DeviceSample | None:
        """None: it cannot be read, as within a region that is being captured as a graph."""
        module = _module(tensor.device.type)
        if module is None or module.is_current_stream_capturing():
            return None
        if (device := self._devices.get(tensor.device)) is None:
            device = self._devices[tensor.device] = _Device(module, tensor.device)
        sample = device.take(tensor, offset)
        self._samples.append(sample)
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="understudy-samples", daemon=True).start()
        self._more.set()
        return sample

    def restart(self) -> None:
        """For the next attempt: what was taken is not asked for any more."""
        self._samples = []
        for device in self._devices.values():
            device.restart()

    def collect(self) -> None:
        """Make the digests of what is there. Raises what a failed device raises."""
        with self._collecting:
            samples = self._samples
            for number, device in self._devices.items():
                device.collect(one for one in list(samples) if one.chunk.memory.device == number)

    def hurry(self, limit: float) -> None:
        """Have the thread look now, and wait for at most `limit` seconds until it has."""
        if any(one.digest is None for one in self._samples):
            self._looked.clear()
            self._now.set()
            self._looked.wait(limit)

    def _watch(self) -> None:
        while True:
            self._more.wait()
            self._now.wait(GAP)
            self._now.clear()
            self._more.clear()
            try:
                self.collect()
            except Exception:
                time.sleep(GAP)  # the device has failed: what uses it next finds out
            self._come()
            self._looked.set()
            if any(one.digest is None for one in self._samples):
                self._more.set()


@functools.cache
def _module(kind: str) -> Any:
    """torch's module for this kind of accelerator; None of a device that has no streams, as "meta"."""
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:
        return None
    needed = ("Event", "Stream", "stream", "device", "is_current_stream_capturing")
    return module if all(hasattr(module, name) for name in needed) else None


def host_memory(size: int) -> torch.Tensor:
    """Bytes into which a device copies on its own."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
