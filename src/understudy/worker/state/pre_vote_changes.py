"""Parameters and moments that a transaction changes in front of its vote: a momentum encoder, SAM's detour, averaged weights that
are put in
for an evaluation.

A redo relies on parameters and moments being what they were at begin, because optimizers change them behind the vote only. Where a script
does otherwise that has to be known before the first loss:

- In the first transactions of each function, and in those whose number is a power of two, everything is copied at begin, and
  compared before
  the vote: content and address, since no counter sees a change through `.data` or numpy.
- What is found there is copied at every begin of this function from then on, put back by a redo, and left out of the comparisons
  on the side,
  which read while the step runs. All ranks go by what any of them has found.
- In between the counters of changes are looked at. A change that they show first is told, with its function; from then on it is copied,
  too. Should this very transaction have to be redone, the job ends with a message: nobody knows what was there.
- Memory that a script has exchanged (`.data =`) is put back by a redo wherever it was, as far as it stood there at begin.

Known limits: a change of content through `.data` or numpy, or of DTensors by `torch._foreach_` functions, that begins in a
transaction of another number is found at the next power of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from understudy.messages import registered
from understudy.worker.encoding.digests import digest_bytes, flat_bytes
from understudy.worker.errors import UsageError
from understudy.worker.state.registry import State
from understudy.worker.state.tensors import changes, counts_changes, local_tensor, put_back

Found = dict[str, list[str]]  # by function, sorted


@dataclass
class _Kept:
    tensor: torch.Tensor  # as the script holds it
    memory: torch.Tensor  # what it stood for
    content: torch.Tensor  # a copy, on the host


@dataclass
class Before:
    """What is known of a begin."""

    function: str
    full: bool  # everything was copied
    kept: dict[str, _Kept] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)


@dataclass
class _Watched:
    """Parameters whose counters are looked at, and where they were."""

    names: list[str] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)  # as the script holds them
    memory: list[torch.Tensor] = field(default_factory=list)

    def moved(self) -> bool:
        """Whether the first or the last one stands elsewhere: who moves one moves all."""
        return any(local_tensor(self.tensors[i]).data_ptr() != self.memory[i].data_ptr() for i in (0, -1)) if self.names else False


class PreVoteChanges:
    def __init__(self, state: State) -> None:
        self._state = state
        self._found: dict[str, set[str]] = {}  # by function: what it is known to change before its vote
        self._calls: dict[str, int] = {}  # of each function: how many transactions of it have begun
        self._watched = _Watched()
        self._copies: dict[str, torch.Tensor] = {}  # memory to use again, of what is known to change
        self.mark = 0  # of what was found, for the agreement
        self.entries: set[str] = set()  # what any function changes
        self.unequal = False  # ranks have found different things: told at the next begin
        self.found_now = False  # whether this transaction has shown something new

    def begin(self, function: str) -> Before:
        calls = self._calls.get(function, 0)
        self._calls[function] = calls + 1
        full = calls & (calls - 1) == 0
        self.found_now = False
        if full or self._watched.moved():
            self._watch()
        before, known = Before(function, full), self._found.get(function, ())
        if full or known:
            before.kept = {entry: self._keep(entry, tensor, entry in known) for entry, tensor in self._tensors() if full or entry in known}
        before.versions = [changes(tensor) for tensor in self._watched.tensors]
        return before

    def _keep(self, entry: str, tensor: torch.Tensor, again: bool) -> _Kept:
        """`again`: at the next begin, too, so that the memory of the copy is kept for that."""
        memory, copy = local_tensor(tensor), self._copies.get(entry)
        if not again:
            return _Kept(tensor, memory, memory.cpu() if memory.device.type != "cpu" else memory.clone())
        if copy is None or copy.shape != memory.shape or copy.stride() != memory.stride() or copy.dtype != memory.dtype:
            copy = self._copies[entry] = torch.empty_like(memory, device="cpu")
        return _Kept(tensor, memory, copy.copy_(memory))

    def passed(self, before: Before) -> None:
        """The vote has passed: this transaction is not redone any more, and its copies are not needed."""
        before.kept.clear()

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._state.parameters()
        yield from self._state.moments()

    def _watch(self) -> None:
        watched = self._watched = _Watched()
        for entry, tensor in self._state.parameters():
            if counts_changes(tensor):
                watched.names.append(entry)
                watched.tensors.append(tensor)
                watched.memory.append(local_tensor(tensor))

    def look(self, before: Before) -> str:
        """Right before the vote: notes what has changed since begin; gives what a user should know of it, or ""."""
        changed = self._changed(before) - self._found.get(before.function, set())
        if not changed:
            return ""
        self.add(before.function, changed)
        self.found_now = True
        example, more = min(changed), f" (one of {len(changed)})" if len(changed) > 1 else ""
        told = registered.CHANGED_BEFORE_VOTE if before.full else registered.CHANGED_BEFORE_VOTE_LATE
        return told(function=before.function, entry=example, more=more)

    def _changed(self, before: Before) -> set[str]:
        watched, changed = self._watched, set[str]()
        now = [changes(tensor) for tensor in watched.tensors]
        if now != before.versions:
            changed = {name for name, version, before_it in zip(watched.names, now, before.versions, strict=True) if version != before_it}
        if before.full:
            present = dict(self._tensors())
            changed |= {entry for entry, kept in before.kept.items() if entry not in present or not _is_same(present[entry], kept)}
        return changed

    def restore(self, before: Before) -> None:
        """In a redo. Raises `UsageError` if something has changed of which there is no copy."""
        changed = self._changed(before)
        lost, gone = changed - before.kept.keys(), before.kept.keys() - dict(self._tensors()).keys()
        if lost:
            raise UsageError(registered.NO_COPY_TO_REDO(function=before.function, entry=min(lost)))
        if gone:
            raise UsageError(registered.TAKEN_AWAY(function=before.function, entry=min(gone)))
        with torch.no_grad():
            for tensor, memory in zip(self._watched.tensors, self._watched.memory, strict=True):
                put_back(tensor, memory)
            for kept in before.kept.values():
                put_back(kept.tensor, kept.memory)
            for kept in before.kept.values():
                if not _is_same(kept.tensor, kept):
                    kept.memory.copy_(kept.content)

    # -- what all ranks know ---------------------------------------------------------------------------------------------

    def add(self, function: str, entries: set[str]) -> None:
        self._found.setdefault(function, set()).update(entries)
        self.entries |= entries
        told = "\0".join(f"{name}\1{entry}" for name, some in self.told().items() for entry in some)
        self.mark = digest_bytes(told.encode()) >> 1

    def told(self) -> Found:
        return {function: sorted(some) for function, some in sorted(self._found.items())}

    def adopt(self, found: Mapping[str, list[str]]) -> None:
        """What another rank has told."""
        for function, entries in found.items():
            if not self._found.get(function, set()) >= set(entries):
                self.add(function, set(entries))
        self.unequal = False


def _is_same(tensor: torch.Tensor, kept: _Kept) -> bool:
    memory = local_tensor(tensor)
    if memory.data_ptr() != kept.memory.data_ptr() or memory.shape != kept.content.shape or memory.dtype != kept.content.dtype:
        return False
    return torch.equal(_bits(memory.cpu()), _bits(kept.content))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """As numbers that are equal only where every bit is."""
    flat = flat_bytes(tensor)
    return flat.view(torch.int64) if flat.numel() % 8 == 0 and flat.storage_offset() % 8 == 0 else flat
