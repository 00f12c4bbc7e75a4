"""The record of one collective, and how much of a redo was compared."""

from __future__ import annotations

import functools
import struct
from collections.abc import Hashable
from typing import Any, NamedTuple

import torch

from understudy.worker.collectives.calls import shown
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.verification.device_samples import DeviceSample


class Entry(NamedTuple):
    """One collective."""

    order: int  # of the attempt's collectives, on all lanes
    operator: str
    arguments: tuple[tuple[str, Any], ...]  # without tensors
    given: list[tuple[torch.dtype, torch.Size]]  # of each tensor that is read
    digests: list[int | DeviceSample]  # of them; none if they cannot be read
    size: int  # bytes of them
    memory: frozenset[int]  # their addresses

    @property
    def code(self) -> int:
        """Return a digest of the call without its reduction, which torch reports slowly."""
        is_object = self.digests and not self.given
        plain = tuple((name, value) for name, value in self.arguments if not (is_object or isinstance(value, torch.ScriptObject)))
        return code_of((self.operator, plain, tuple(self.given)))

    @property
    def call(self) -> tuple[str, str, list[tuple[torch.dtype, torch.Size]]]:
        """Return all but the numbers."""
        return self.operator, shown(self.arguments), self.given

    @property
    def on_its_way(self) -> bool:
        return any(isinstance(one, DeviceSample) for one in self.digests)

    def settle(self) -> None:
        """Put digests in place of the samples that have arrived."""
        for number, one in enumerate(self.digests):
            if isinstance(one, DeviceSample) and (found := one.value()) is not None:
                self.digests[number] = found

    @property
    def is_read(self) -> bool:
        return not self.on_its_way if self.digests else not self.given

    @property
    def mark(self) -> int:
        """Return a digest of the input, for comparison by another worker."""
        known = [one for one in self.digests if not isinstance(one, DeviceSample)]
        if len(known) < len(self.digests) or not known:
            return 0
        return known[0] if len(known) == 1 else digest_bytes(struct.pack(f"<{len(known)}Q", *known))

    def __str__(self) -> str:
        tensors = ", ".join(f"{str(kind).removeprefix('torch.')} {tuple(shape)}" for kind, shape in self.given[:3]) or "nothing"
        return f"{self.operator.strip('_')} ({shown(self.arguments) or 'no settings'}) of {tensors}"


class RedoCompared(NamedTuple):
    """How much of a redo was the same as in the attempt before."""

    collectives: int
    of: int  # collectives that the redo has issued
    size: int  # bytes of their inputs
    size_of: int


NOTHING_COMPARED = RedoCompared(0, 0, 0, 0)
Lanes = dict[str, list[Entry]]


@functools.lru_cache(4096)
def code_of(what: Hashable) -> int:
    """Return a digest of texts, numbers, types and sizes that is the same in all workers."""
    return digest_bytes(repr(what).encode())


def address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory; 0 for tensors without one of their own, as sparse ones."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0
