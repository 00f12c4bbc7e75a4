"""Digests of tensors on accelerators: of a sample of their elements, as they were when a collective was issued.

The stream that issues the collective also picks the elements, copies them to the host, and then sets a flag there. Any thread can see
by the flag whether a sample has arrived, without a call of the device's driver: such a call may block while another thread waits for
the collective that is to be aborted, and it may break the capture of a graph.

Known limits: the content of a tensor is known only once its stream has reached the copy, so a rank that is lost before that has sent
less. Of the tensors of one attempt no more than `MOST` samples, or `LARGEST` bytes of them, are kept. The memory stays allocated.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
import xxhash

WHOLE = 1 << 16  # bytes of one tensor that are read in full
# Between two elements of a sample. A prime: with 64, gradients of layers whose features lie at multiples of it had the same digest.
STRIDE = 509
CHUNK = 4 << 20  # bytes on the device, and as many on the host; a sample of 25 MB takes 49 kB
LARGEST = 64 << 20
MOST = 1 << 14
_ALIGNED = 16  # bytes, the largest element


class DeviceSample:
    """Elements of one tensor, on their way to the host."""

    __slots__ = ("_begin", "_chunk", "_end", "_flag", "_flags")

    def __init__(self, chunk: _Chunk, begin: int, end: int, flags: Any, flag: int) -> None:
        """Describe the sample. `begin`, `end`: bytes of `chunk`. `flag`: the element of `flags` that is set when they have arrived."""
        self._chunk, self._begin, self._end, self._flags, self._flag = chunk, begin, end, flags, flag

    def value(self) -> int | None:
        """Return the digest of the elements; None: they have not arrived. Any thread, until the next attempt."""
        return xxhash.xxh3_64_intdigest(self._chunk.read[self._begin : self._end]) if self._flags[self._flag] else None


class _Chunk:
    """Memory for samples, on the device and on the host."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.memory = torch.empty(size, dtype=torch.uint8, device=device)
        self.host = host_memory(size)
        self.read = self.host.numpy().data
        self._views: dict[torch.dtype, torch.Tensor] = {}

    def slot(self, kind: torch.dtype, begin: int, count: int) -> torch.Tensor:
        """Return room for `count` elements from byte `begin` on."""
        if (view := self._views.get(kind)) is None:
            with torch.inference_mode(False):
                view = self._views[kind] = self.memory.view(kind)
        return view.narrow(0, begin // kind.itemsize, count)


class _Device:
    """The samples of the running attempt on one device."""

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module, self._device = module, device
        self._chunks: list[_Chunk] = []
        self._chunk = self._used = self._count = 0
        self._placing = threading.Lock()  # the main thread and one of autograd's may issue collectives
        self._allocate(self._make_flags)

    def _make_flags(self) -> None:
        self._flags = host_memory(MOST)
        self._set = self._flags.numpy()
        self._one = torch.ones(1, dtype=torch.uint8, device=self._device)

    def _allocate(self, make: Any) -> None:
        """Allocate memory that every stream may use from now on, and that is no tensor of inference mode."""
        stream = self._module.Stream(device=self._device)
        with torch.inference_mode(False), self._module.stream(stream):
            make()
        stream.synchronize()

    def restart(self) -> None:
        """Use the memory again, unless something is still on its way into it."""
        if self._set[: self._count].all():
            self._chunk = self._used = self._count = 0

    def take(self, tensor: torch.Tensor, offset: int) -> DeviceSample | None:
        plain = tensor.detach().contiguous()
        count = plain.numel()
        if plain.nbytes <= WHOLE:
            source = plain.view(-1)
        else:
            count = (count - offset + STRIDE - 1) // STRIDE
            source = plain.as_strided((count,), (STRIDE,), plain.storage_offset() + offset)
        size = count * plain.element_size()
        with self._placing:
            if (place := self._place(size)) is None:
                return None
        chunk, begin, flag = place
        chunk.slot(plain.dtype, begin, count).copy_(source)
        chunk.host.narrow(0, begin, size).copy_(chunk.memory.narrow(0, begin, size), non_blocking=True)
        self._flags.narrow(0, flag, 1).copy_(self._one, non_blocking=True)
        return DeviceSample(chunk, begin, begin + size, self._set, flag)

    def _place(self, size: int) -> tuple[_Chunk, int, int] | None:
        """Return room for a sample, and the number of its flag; None: there is none."""
        if self._count == MOST:
            return None
        while self._chunk < len(self._chunks) and self._used + size > self._chunks[self._chunk].memory.numel():
            self._chunk, self._used = self._chunk + 1, 0
        if self._chunk == len(self._chunks):
            room = max(CHUNK, _aligned(size))
            if sum(chunk.memory.numel() for chunk in self._chunks) + room > LARGEST:
                return None
            self._allocate(lambda: self._chunks.append(_Chunk(room, self._device)))
        begin, flag = self._used, self._count
        self._used, self._count = begin + _aligned(size), flag + 1
        self._set[flag] = 0
        return self._chunks[self._chunk], begin, flag


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


class DeviceSamples:
    """The samples of the running attempt."""

    def __init__(self) -> None:
        self._devices: dict[torch.device, _Device] = {}

    def take(self, tensor: torch.Tensor, offset: int) -> DeviceSample | None:
        """Take a sample, or all of a small tensor. None: it cannot be read, as within a region that is captured as a graph."""
        if (module := _module(tensor.device.type)) is None:
            return None
        with module.device(tensor.device):  # the script need not have made it the current one
            if module.is_current_stream_capturing():
                return None
            if (device := self._devices.get(tensor.device)) is None:
                device = self._devices.setdefault(tensor.device, _Device(module, tensor.device))
            return device.take(tensor, offset)

    def restart(self) -> None:
        """Begin another attempt: the values of what was taken so far are not asked for any more."""
        for device in self._devices.values():
            device.restart()


@functools.cache
def _module(kind: str) -> Any:
    """torch's module for this kind of accelerator; None of a device that has no streams, as "meta"."""
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:
        return None
    needed = ("Stream", "stream", "device", "is_current_stream_capturing")
    return module if all(hasattr(module, name) for name in needed) else None


def host_memory(size: int) -> torch.Tensor:
    """Return bytes into which a device can copy while the host goes on."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
