"""Digests of what goes into collectives: of all of a small tensor, and of every `STRIDE`th element of a large one.

On the host a digest is made at once. On an accelerator the elements are picked on the stream that issues the collective, which costs it one
small kernel, and come to the host through pinned memory on a stream of their own: the host waits for none of it, and the digest is there
when it is asked for later. Within a region that is being captured as a graph nothing is read.

Known limits: what a tensor on an accelerator holds is known only once its stream has come there, so a rank that is lost before that has
told less. The accelerator's part has run on no accelerator yet; its tests put one's streams and events in place of it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import xxhash

from understudy.worker.encoding.digests import digest, flat_bytes

WHOLE = 1 << 20  # bytes of one tensor that are read in full; 40 MB take 2.8 ms, and a sample of them 0.5 ms
WHOLE_ON_DEVICE = 1 << 16  # the same on an accelerator
# Between two elements of a sample. A prime: with 64, gradients of layers whose features lie at multiples of it had the same digest.
STRIDE = 509
_PLAIN = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}  # by the size of an element


def sampled(tensor: torch.Tensor, offset: int) -> int | DeviceSample | None:
    """Of a tensor, or of a sample of its elements from `offset` on; None where it cannot be read."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg():
        return None
    if tensor.device.type == "cpu":
        plain = tensor.detach() if tensor.is_contiguous() else tensor.detach().contiguous()
        if plain.nbytes <= WHOLE:
            return digest(plain)
        flat = flat_bytes(plain).numpy().view(f"V{plain.element_size()}")  # numpy does not know all types, and its slices take less time
        return xxhash.xxh3_64_intdigest(flat[offset::STRIDE].tobytes())
    module = _module(tensor.device.type)
    if module is None or module.is_current_stream_capturing():
        return None
    return DeviceSample(tensor, offset, module)


class DeviceSample:
    """On its way from an accelerator."""

    def __init__(self, tensor: torch.Tensor, offset: int, module: Any) -> None:
        """`module`: torch's for this kind of accelerator."""
        plain = tensor.detach().contiguous().reshape(-1).view(_PLAIN[tensor.element_size()])
        picked = plain.clone() if tensor.nbytes <= WHOLE_ON_DEVICE else plain[offset::STRIDE].contiguous()
        issuing, side = module.current_stream(tensor.device), _side_stream(module, tensor.device)
        side.wait_stream(issuing)
        with module.stream(side):
            self._host = _host_memory(picked)
            self._host.copy_(picked, non_blocking=True)
            picked.record_stream(side)
            self._arrived = module.Event()
            self._arrived.record(side)

    def value(self, *, wait: bool) -> int | None:
        """The digest; None: it has not come, and is not waited for."""
        if wait:
            self._arrived.synchronize()
        return digest(self._host) if self._arrived.query() else None


@functools.cache
def _module(kind: str) -> Any:
    """torch's module for this kind of accelerator; None of a device that has no streams, as "meta"."""
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:
        return None
    needed = ("Event", "Stream", "stream", "current_stream", "is_current_stream_capturing")
    return module if all(hasattr(module, name) for name in needed) else None


@functools.cache
def _side_stream(module: Any, device: torch.device) -> Any:
    return module.Stream(device=device)


def _host_memory(picked: torch.Tensor) -> torch.Tensor:
    return torch.empty(picked.shape, dtype=picked.dtype, pin_memory=True)
