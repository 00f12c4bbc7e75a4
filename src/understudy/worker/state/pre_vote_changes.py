"""Parameters and moments that a transaction changes before its vote: a momentum encoder, SAM's detour, averaged weights that are used in
an evaluation.

A redo relies on parameters and moments being as they were at begin, because optimizers change them only after the vote. A script that
does otherwise has to be found before the first loss:

- In the first transactions of each function, and in those whose number is a power of two, everything is copied at begin and compared
  before the vote: content and address, since no counter notices a change through `.data` or numpy.
- A tensor that is found to change there is from then on copied at every begin of this function, restored by a redo, and left out of the
  background comparisons, which read while the step runs. All ranks act on what any of them has found.
- In other transactions the counters of changes are checked. A change that they are the first to show is reported, with its function;
  from then on the tensor is copied, too. If this very transaction has to be redone, the job ends with a message, because there is no
  copy of the earlier content.
- Memory that a script has exchanged (`.data =`) is restored by a redo, wherever it was, as of begin.

Known limits: a change of content through `.data` or numpy, or of DTensors by `torch._foreach_` functions, that begins in a transaction
of another number is found at the next power of two.
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
    memory: torch.Tensor  # its memory at begin
    content: torch.Tensor  # a copy, on the host


@dataclass
class Before:
    """The knowledge about a begin."""

    function: str
    full: bool  # everything was copied
    kept: dict[str, _Kept] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)


@dataclass
class _Watched:
    """Parameters whose counters are checked, and their addresses."""

    names: list[str] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)  # as the script holds them
    memory: list[torch.Tensor] = field(default_factory=list)

    def moved(self) -> bool:
        """Return whether the first or the last parameter has moved to other memory: code that moves one moves all."""
        return any(local_tensor(self.tensors[i]).data_ptr() != self.memory[i].data_ptr() for i in (0, -1)) if self.names else False


class PreVoteChanges:
    def __init__(self, state: State) -> None:
        self._state = state
        self._found: dict[str, set[str]] = {}  # by function: the entries that it is known to change before its vote
        self._calls: dict[str, int] = {}  # by function: how many of its transactions have begun
        self._watched = _Watched()
        self._copies: dict[str, torch.Tensor] = {}  # memory to use again, for copies of entries that are known to change
        self.mark = 0  # of the findings, for the agreement
        self.entries: set[str] = set()  # what any function changes
        self.unequal = False  # ranks have found different things: reported at the next begin
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
        """Copy a tensor. `again`: at the next begin, too, so that the memory of the copy is kept for that."""
        memory, copy = local_tensor(tensor), self._copies.get(entry)
        if not again:
            return _Kept(tensor, memory, memory.cpu() if memory.device.type != "cpu" else memory.clone())
        if copy is None or copy.shape != memory.shape or copy.stride() != memory.stride() or copy.dtype != memory.dtype:
            copy = self._copies[entry] = torch.empty_like(memory, device="cpu")
        return _Kept(tensor, memory, copy.copy_(memory))

    def passed(self, before: Before) -> None:
        """Release the copies after the vote has passed: this transaction is not redone any more."""
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
        """Note, right before the vote, what has changed since begin. Returns what a user should know of it, or ""."""
        changed = self._changed(before) - self._found.get(before.function, set())
        if not changed:
            return ""
        self.add(before.function, changed)
        self.found_now = True
        example, more = min(changed), f" (one of {len(changed)})" if len(changed) > 1 else ""
        message = registered.CHANGED_BEFORE_VOTE if before.full else registered.CHANGED_BEFORE_VOTE_LATE
        return message(function=before.function, entry=example, more=more)

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
        """Restore the copies in a redo. Raises `UsageError` if something has changed that has no copy."""
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
        listed = "\0".join(f"{name}\1{entry}" for name, some in self.found_changes().items() for entry in some)
        self.mark = digest_bytes(listed.encode()) >> 1

    def found_changes(self) -> Found:
        return {function: sorted(some) for function, some in sorted(self._found.items())}

    def adopt(self, found: Mapping[str, list[str]]) -> None:
        """Adopt what another rank has found."""
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
    """View a tensor as numbers that are equal only if every bit is."""
    flat = flat_bytes(tensor)
    return flat.view(torch.int64) if flat.numel() % 8 == 0 and flat.storage_offset() % 8 == 0 else flat
