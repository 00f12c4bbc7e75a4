"""Digests of the inputs of collectives on the host: of all of a small tensor, and of every `STRIDE`th element of a large one."""

from __future__ import annotations

import torch
import xxhash

from understudy.worker.encoding.digests import digest, flat_bytes
from understudy.worker.verification.device_samples import STRIDE

WHOLE = 1 << 20  # bytes of one tensor that are read in full; 40 MB take 2.8 ms, and a sample of them 0.5 ms


def readable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's elements are its bytes."""
    return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg())


def sampled(tensor: torch.Tensor, offset: int) -> int:
    """Return a digest of a tensor on the host, or of a sample of its elements from `offset` on."""
    plain = tensor.detach() if tensor.is_contiguous() else tensor.detach().contiguous()
    if plain.nbytes <= WHOLE:
        return digest(plain)
    flat = flat_bytes(plain).numpy().view(f"V{plain.element_size()}")  # numpy does not know all types, and its slices take less time
    return xxhash.xxh3_64_intdigest(flat[offset::STRIDE].tobytes())
