"""Records what a script's set-up receives from its peers, and replays it to a newcomer.

A newcomer runs the script's set-up alone, long after its peers, and every collective in it must give what the lost rank was given. Both
sides work by a kernel before the `c10d` operators (every collective, from Python, C++ or functional collectives, passes the
dispatcher): the recorder calls the operator and notes its output, the replayer writes the noted output instead of calling it. At the
first transaction the kernels are removed again, so they do not slow down training.

Outputs are kept whole, except large ones in the memory of registered state, as of a broadcast of parameters, that gave every rank what
it had anyway: a newcomer has it, too, so only its digest is kept. If ranks are not seeded alike it has something else, and what the
script derives from that before its first step (a frozen copy of the model) would be something else. What is registered is known at the
first transaction; until then everything is kept, up to a limit (`UNDERSTUDY_SETUP_LIMIT`). To make room, the contents of large outputs
are dropped whose memory is still in use, as that of parameters is and that of a received object is not. A content that was dropped, or
never had room, must turn out to be registered state, which is transferred later, and a warning is printed if it was something else: if
it is not registered the script is refused, because a newcomer would go on with other values than the lost rank had.

DistributedDataParallel broadcasts parameters in flat buffers that it then copies from. `_broadcast_coalesced`, which does that, is
therefore watched for the targets of its results.

Limits: operations that are waited for later (`async_op=True`) are waited for at once while recording, except point-to-point receives,
whose value is read at the next collective. Large results that a script copies into registered state itself count as not registered.

A wrapper around the Python functions would miss collectives that are called from C++. A call on a newcomer that does not match the record
ends the job, with the first difference. Where a large output has changed what a rank had in registered state, all ranks keep such outputs
whole; what has no room is reported. At the first transaction the record goes to the buddies; each rank keeps those of up to two others.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef

from understudy.messages import set_up
from understudy.worker import patches
from understudy.worker.collectives.interception import BETWEEN_TWO, Collective, Kernels, below, shapes, work_of
from understudy.worker.encoding.digests import digest
from understudy.worker.encoding.messages import RecordedCollective, SetupRecord, pack, unpack
from understudy.worker.errors import UsageError

WHOLE = 256 << 10  # bytes of one output up to which it is kept whole even if it is registered state
LIMIT = int(os.environ.get("UNDERSTUDY_SETUP_LIMIT", 64 << 20))  # bytes of all outputs kept whole
_torch: Any = dist  # for what it does not export


@dataclass
class _Large:
    """An output that may or may not have to be kept whole; not known yet."""

    number: int  # of the collective
    entry: RecordedCollective
    size: int
    memory: list[StorageWeakRef]  # its target; as long as it is referenced so, no other storage has its identity
    content: list[torch.Tensor] | None
    moved: bool  # it differs from the earlier content of its memory

    def in_use(self) -> bool:
        return not any(reference.expired() for reference in self.memory)  # type: ignore[no-untyped-call]

    def within(self, storages: set[int]) -> bool:
        return bool(self.memory) and all(reference.cdata in storages for reference in self.memory)


class SetUpRecorder(Kernels):
    """Notes the output of every collective of this rank's set-up."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[RecordedCollective] = []
        self._late: list[tuple[int, list[torch.Tensor], list[int]]] = []
        self._large: list[_Large] = []
        self._kept = 0
        self.given_up = 0  # bytes of registered state that were not kept, if `finish` is called with `unlike`
        self._targets: list[torch.Tensor] = []  # of the coalesced broadcast that is under way
        self._coalesced: patches.Patch | None = None

    def install(self) -> None:
        super().install()
        self._coalesced = patches.wrap(_torch, "_broadcast_coalesced", self._broadcast, "which tensors DDP broadcasts when it is made")

    def _broadcast(self, stock: Callable[..., None], process_group: Any, tensors: list[torch.Tensor], *args: Any, **kwargs: Any) -> None:
        self._targets = list(tensors)
        try:
            stock(process_group, tensors, *args, **kwargs)
        finally:
            self._targets = []

    def remove(self) -> None:
        super().remove()
        if self._coalesced is not None:
            self._coalesced.remove()

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        name, tensors = collective.operator, collective.outputs
        before = _digests(tensors) if _size(tensors) > WHOLE else []
        result = operate()
        self.entries.append(RecordedCollective(name, collective.group.group_name, shapes(tensors)))
        if name in BETWEEN_TWO:
            self._late.append((len(self.entries) - 1, tensors, before))
            return result
        if (work := work_of(result)) is not None:
            work.wait()
        self._settle()
        self._note(len(self.entries) - 1, tensors, before)
        return result

    def _settle(self) -> None:
        late, self._late = self._late, []
        for number, tensors, before in late:
            self._note(number, tensors, before)

    def _note(self, number: int, tensors: list[torch.Tensor], before: list[int]) -> None:
        entry = self.entries[number]
        size = _size(tensors)
        room = self._make_room(size)
        if size <= WHOLE and room:
            self._kept += size
            entry.whole = _copies(tensors)
            return
        entry.digests = _digests(tensors)
        moved = bool(before) and before != entry.digests
        memory = [StorageWeakRef(_storage(tensor)) for tensor in self._targets or tensors]  # type: ignore[no-untyped-call]
        self._large.append(_Large(number, entry, size, memory, _copies(tensors) if room else None, moved))
        self._kept += size if room else 0

    def _make_room(self, size: int) -> bool:
        """Return whether there is room for that much. Drops the output that is most probably registered state."""
        if self._kept + size > LIMIT and size <= LIMIT:
            for large in sorted(self._large, key=lambda large: large.size, reverse=True):
                if self._kept + size > LIMIT and large.content is not None and large.in_use():
                    large.content = None
                    self._kept -= large.size
        return self._kept + size <= LIMIT

    def moved(self, state: Iterable[torch.Tensor]) -> bool:
        """Return whether a large result has changed what this rank had in registered `state`, so that ranks do not set that up alike."""
        self._settle()
        registered = _storages(state)
        return any(large.moved and large.within(registered) for large in self._large)

    def finish(self, state: Iterable[torch.Tensor] = (), unlike: bool = False, over: int = 0) -> bytes:
        """Remove the kernels and return the record. `state`: all registered tensors. `unlike`: some rank has `moved`. `over`: the time.

        Raises `UsageError` if there is more to keep than the limit allows.
        """
        self._settle()
        self.remove()
        registered = _storages(state)
        for large in self._large:
            if large.within(registered) and (large.content is None or not unlike):
                self.given_up += large.size if unlike else 0
                continue
            if large.content is None:
                raise UsageError(_refusal(large))
            large.entry.whole, large.entry.digests = large.content, None
        self._large.clear()
        return pack(SetupRecord(self.entries, over))


def _storages(state: Iterable[torch.Tensor]) -> set[int]:
    return {_storage(tensor)._cdata for tensor in state}


def _size(tensors: list[torch.Tensor]) -> int:
    """Return the size in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _digests(tensors: list[torch.Tensor]) -> list[int]:
    return [digest(tensor.detach().contiguous()) for tensor in tensors]


def _copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for tensor in tensors]


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return (tensor._local_tensor if isinstance(tensor, DTensor) else tensor).untyped_storage()


def _shown(entry: RecordedCollective) -> str:
    return f"{entry.operator} on group {entry.group!r} with {entry.outputs}"


def _refusal(large: _Large) -> str:
    entry = large.entry
    shapes = ", ".join(f"{kind} {tuple(shape)}" for kind, shape in entry.outputs[:3]) + (", ..." if len(entry.outputs) > 3 else "")
    return set_up.SET_UP_TOO_LARGE(
        number=large.number,
        operator=entry.operator,
        group=entry.group,
        megabytes=large.size / 1e6,
        shapes=shapes,
        limit=LIMIT / 1e6,
    )


class SetUpReplayer(Kernels):
    """Gives a newcomer, at every collective of its set-up, what the lost rank was given."""

    def __init__(self, record: bytes, rank: int) -> None:
        super().__init__()
        setup = unpack(SetupRecord, record)
        self._entries, self.set_up_at = setup.collectives, setup.over
        self._rank = rank
        self._next = 0
        self._over = False
        self._alone = ProcessGroup(HashStore(), 0, 1)
        self._different: list[tuple[weakref.ref[torch.Tensor], str]] = []

    def install(self) -> None:
        """Install the kernels. Call only after the groups' own classes are in place."""
        make: Any = dist.ProcessGroupGloo  # what its timeout is typed as differs between versions of torch
        backend = make(HashStore(), 0, 1)
        self._backend = backend
        self._alone._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, backend)
        super().install()

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        name, group, tensors = collective.operator, collective.group.group_name, collective.outputs
        if self._over:
            raise UsageError(set_up.COLLECTIVE_ON_THE_WAY(rank=self._rank, operator=name, group=group))
        number, self._next = self._next, self._next + 1
        here = RecordedCollective(name, group, shapes(tensors))
        if number >= len(self._entries):
            count = len(self._entries)
            raise UsageError(set_up.COLLECTIVE_TOO_MANY(rank=self._rank, operator=name, group=group, number=number, count=count))
        entry = self._entries[number]
        if (here.operator, here.group, here.outputs) != (entry.operator, entry.group, entry.outputs):
            raise UsageError(set_up.COLLECTIVE_DIFFERS(rank=self._rank, number=number, here=_shown(here), there=_shown(entry)))
        with torch.no_grad():
            if entry.whole is not None:
                for tensor, value in zip(tensors, entry.whole, strict=True):
                    tensor.detach().copy_(value)
            else:
                for tensor, expected in zip(tensors, entry.digests or [], strict=True):
                    if digest(tensor.detach().contiguous()) != expected:
                        text = f"{name} on group {group!r}, number {number}, {tensor.dtype} {tuple(tensor.shape)}"
                        self._different.append((weakref.ref(tensor), text))
        token = torch.empty(1)
        return collective.answer(torch.ops.c10d.barrier.default.redispatch(below(token), token, self._alone.boxed(), []))

    def finish(self) -> None:
        """End the set-up: until `remove`, which the arrival calls, every collective is refused."""
        self._over = True
        if self._next < len(self._entries):
            entry = self._entries[self._next]
            issued, count = self._next, len(self._entries)
            raise UsageError(
                set_up.COLLECTIVE_MISSING(rank=self._rank, issued=issued, count=count, operator=entry.operator, group=entry.group)
            )

    def differences(self, storages: set[int]) -> list[str]:
        """Return large results that could not be replayed and are in none of the registered `storages` (addresses), as far as known."""
        found = []
        for reference, text in self._different:
            tensor = reference()
            if tensor is not None and tensor.untyped_storage().data_ptr() not in storages:
                found.append(text)
        return found
