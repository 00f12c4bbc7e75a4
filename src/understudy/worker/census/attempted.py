"""Restores what an interrupted attempt has changed for the first time: attributes and containers (`owners`), and tensors.

A walk copies tensors that are not registered. Torch counts the changes of each tensor, so that a redo knows whether the copy has the
content with which the attempt began. Memory that was exchanged (`.data`) is bound again, and needs no copy.

Known limits: a change through numpy or `.data` is not counted, and so not seen here. Tensors of up to `LARGEST` bytes, on the host.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from understudy.worker.census.bindings import Bindings, WalkBudget
from understudy.worker.census.leaves import LARGEST
from understudy.worker.census.owners import Met, Owners
from understudy.worker.census.roots import RootKey, Roots, Table
from understudy.worker.census.walk import Path, WalkResult

MOST = 256  # tensors
TOTAL = 64 << 20  # bytes of their copies


@dataclass
class _Copied:
    """One tensor, as of a walk."""

    path: Path
    tensor: weakref.ref[torch.Tensor]
    version: int
    address: int
    content: torch.Tensor


class BegunTensor(NamedTuple):
    """One tensor, as of a begin."""

    copied: _Copied
    version: int
    memory: torch.Tensor


class FirstChanges:
    """Notes at each begin what a redo can restore, of what the last walk has met, and sees at each vote which names have been bound."""

    def __init__(self) -> None:
        self._met, self._tensors = Met(), _Tensors()
        self.owners = Owners()  # as of the last begin
        self.bindings, self.walks = Bindings(), WalkBudget()

    def look(self, found: WalkResult, roots: Roots) -> None:
        """Take what a walk has met."""
        self._met, self._tensors = Met(found, roots.cells()), _Tensors(found)

    def begin(self, roots: Roots, changed: Mapping[str, Path]) -> NotedChanges:
        """Note the present content. `changed`: what has changed before, by entry, whose owners are noted, too."""
        paths = {path.root for path in (*changed.values(), *self._met.variables)}
        self.owners = Owners.of(changed.values(), roots.some(paths), self._met)
        return NotedChanges(self.owners, self._tensors.begin())


class NotedChanges(NamedTuple):
    """The notes of a begin."""

    owners: Owners
    tensors: Sequence[BegunTensor]

    def restore(self, tables: Mapping[RootKey, Table], is_ignored: Callable[[Path], bool]) -> list[Path]:
        """Restore what an attempt has changed, and return the paths of what cannot be restored."""
        self.owners.restore(tables, is_ignored)
        return _restore(self.tensors)


class _Tensors:
    """The tensors as of the last walk."""

    def __init__(self, found: WalkResult | None = None) -> None:
        self._copied: list[_Copied] = []
        room = TOTAL
        for path, tensor in _tensors(found) if found is not None else ():
            size = tensor.numel() * tensor.element_size()
            if size > LARGEST or tensor.device.type != "cpu" or tensor.is_inference() or tensor.is_nested:
                continue
            room -= size
            if room < 0 or len(self._copied) >= MOST:
                break
            self._copied.append(
                _Copied(
                    path,
                    weakref.ref(tensor),
                    tensor._version,
                    tensor.data_ptr(),
                    tensor.detach().clone(memory_format=torch.preserve_format),
                )
            )

    def begin(self) -> list[BegunTensor]:
        """Note their memory and versions at a begin."""
        there = ((copied, copied.tensor()) for copied in self._copied)
        return [BegunTensor(copied, tensor._version, tensor.detach()) for copied, tensor in there if tensor is not None]


def _restore(begun: Sequence[BegunTensor]) -> list[Path]:
    lost = []
    for copied, version, memory in begun:
        tensor = copied.tensor()
        if tensor is None:
            continue
        if tensor.data_ptr() != memory.data_ptr() or tensor.shape != memory.shape:
            tensor.data = memory
        elif tensor._version != version:
            if version == copied.version and memory.data_ptr() == copied.address:
                memory.copy_(copied.content)
                copied.version = tensor._version  # its content is that of the copy again
            else:
                lost.append(copied.path)
    return lost


def _tensors(found: WalkResult) -> Iterator[tuple[Path, torch.Tensor]]:
    for path, value in found.leaves.values():
        yield from _inside(path, value)


def _inside(path: Path, value: Any) -> Iterator[tuple[Path, torch.Tensor]]:
    """Return the tensors in nested containers."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, list | tuple | dict):
        for item in list(value.values() if isinstance(value, dict) else value)[:MOST]:
            yield from _inside(path, item)
