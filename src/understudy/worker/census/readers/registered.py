"""Reader for what a registered thing refers to and its state does not include: hooks, attributes that are not plain, what its `state_dict`
leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from understudy.worker.census.leaves import FIXED
from understudy.worker.census.readers import of_torch
from understudy.worker.census.readers.reading import CARRIED, Part, Reading, is_class_of_script
from understudy.worker.census.walk import Path, attributes_of
from understudy.worker.state.attributes import is_plain_attribute

_DEEPEST = 8


def read_registered(path: Path, thing: Any) -> Reading:
    """Return what a registered thing refers to."""
    if isinstance(thing, torch.Tensor):
        return Reading(None, of_torch.tensor_parts(path, thing))
    if isinstance(thing, torch.nn.Module):
        return of_torch.read_module(path, thing)
    if isinstance(thing, torch.optim.Optimizer):
        parts = of_torch.read_optimizer(path, thing).parts
        return Reading(None, tuple((way, part) for way, part in parts if way.steps[-1][0] == "item" or not is_plain_attribute(part)))
    if issubclass(type(thing), torch.utils.data.DataLoader):  # not one that only its `__class__` calls so
        return of_torch.read_loader(path, thing)
    if is_class_of_script(type(thing)) and callable(getattr(type(thing), "state_dict", None)):
        return Reading(None, tuple(_forgotten(path, thing)))
    return Reading(None)


def _forgotten(path: Path, thing: Any) -> Iterator[Part]:
    """Return attributes that the state dict has neither by name nor by value. The registry reads it in every step as well."""
    names, values, tensors = set[str](), set[Any](), list[torch.Tensor]()
    _gather(thing.state_dict(), names, values, tensors, 0)
    for way, value in attributes_of(path, thing):
        name = str(way.steps[-1][1])
        if name in names or name.lstrip("_") in names:
            continue
        if type(value) in FIXED:
            carried = value in values
        else:
            carried = isinstance(value, torch.Tensor) and any(_is_same(value, one) for one in tensors)
        yield way, CARRIED if carried else value


def _gather(state: Any, names: set[str], values: set[Any], tensors: list[torch.Tensor], depth: int) -> None:
    if isinstance(state, torch.Tensor):
        tensors.append(state)
    elif type(state) in FIXED:
        values.add(state)
    elif depth < _DEEPEST and isinstance(state, dict):
        names.update(name for name in state if isinstance(name, str))
        for part in state.values():
            _gather(part, names, values, tensors, depth + 1)
    elif depth < _DEEPEST and isinstance(state, list | tuple):
        for part in state:
            _gather(part, names, values, tensors, depth + 1)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and bool(torch.equal(one.cpu(), other.cpu()))
