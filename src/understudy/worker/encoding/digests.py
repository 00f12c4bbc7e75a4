"""Position-sensitive digests of state.

xxh3 (64 bits) over the bytes of a tensor, and over its dtype and shape. It sees order and every bit: swapped values and a
single flipped bit change it. A tensor on an accelerator is read through host memory in pieces. It is a check against
accidents, not against an adversary.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
import xxhash

from understudy.messages import encoding

_PLAIN = {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool}  # which numpy has, too
PIECE = 8 << 20  # bytes that pass through host memory at a time


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements fill one block of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((tensor.stride(i), tensor.size(i)) for i in range(tensor.dim()) if tensor.size(i) > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of a dense tensor as a 1-D uint8 view, in storage order; no copy. Raises `ValueError` if it is not dense."""
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        if not _is_dense(tensor):
            raise ValueError(encoding.NOT_DENSE(shape=tuple(tensor.shape), strides=tensor.stride()))
        tensor = tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1).view(torch.uint8)


def pieces(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield `flat` as host memory, piece by piece (the memory itself if it is on the host)."""
    if flat.device.type == "cpu":
        yield flat
        return
    for start in range(0, flat.numel(), PIECE):
        yield flat[start : start + PIECE].cpu()


@lru_cache(4096)
def _kind(dtype: torch.dtype, shape: torch.Size) -> bytes:
    return f"{dtype}{tuple(shape)}".encode()


def digest(tensor: torch.Tensor) -> int:
    """Return a 64-bit digest of content, dtype and shape."""
    hasher = xxhash.xxh3_64(_kind(tensor.dtype, tensor.shape))
    if tensor.dtype in _PLAIN and tensor.device.type == "cpu" and tensor.is_contiguous():
        hasher.update(tensor.detach().numpy().data)  # the same bytes, with less overhead
        return hasher.intdigest()
    for piece in pieces(flat_bytes(tensor)):
        hasher.update(piece.numpy().data)
    return hasher.intdigest()


def digest_bytes(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)
