"""The state of an optimizer: per parameter, and for all parameters together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import torch
from torch.optim import Optimizer

from understudy.worker.encoding.codec import encode

_FIXED = frozenset({type(None), bool, int, float, str, bytes})


def ends_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the first and the last parameter of each group."""
    found = []
    for group in optimizer.param_groups:
        parameters = group["params"]
        if parameters:
            found += [parameters[0], parameters[-1]]
    return found


def all_tensors(optimizer: Optimizer) -> bool:
    """Return whether only tensors are kept for the first and the last parameter of each group, and for those that were added first and
    last to the optimizer's state: an optimizer that keeps something keeps it for all parameters that it trains."""
    state: dict[Any, Any] = optimizer.state
    states = [state.get(parameter, {}) for parameter in ends_of(optimizer)]
    if state:
        states += [next(iter(state.values())), next(reversed(state.values()))]
    for kept in states:
        if not isinstance(kept, dict):
            return False
        for value in kept.values():
            if not isinstance(value, torch.Tensor):
                return False
    return True


def loose_values(optimizer: Optimizer) -> dict[int, dict[str, Any]]:
    """Return the values other than tensors that an optimizer keeps for its parameters, by number of the parameter."""
    loose: dict[int, dict[str, Any]] = {}
    held = (held for held in optimizer.state.values() if isinstance(held, dict))
    if all(isinstance(v, torch.Tensor) for one in held for v in one.values()):
        return loose  # the usual case
    for number, parameter in enumerate(parameters_of(optimizer)):
        for k, v in optimizer.state.get(parameter, {}).items():
            if not isinstance(v, torch.Tensor):
                loose.setdefault(number, {})[k] = v
    return loose


def common_values(optimizer: Optimizer) -> dict[Any, Any]:
    """Return what an optimizer keeps for all of its parameters together."""
    state: dict[Any, Any] = optimizer.state
    return {key: value for key, value in state.items() if isinstance(key, str)}


class EncodedSettings:
    """Encodes the settings of an optimizer's groups, again only if some value is another object than the last time."""

    def __init__(self) -> None:
        self._values: list[Any] | None = None  # the values that were encoded, if they cannot change
        self._data = b""

    def of(self, groups: list[dict[str, Any]], rest: list[Any]) -> bytes:
        """Encode settings, and the `rest`: what the optimizer keeps in addition to tensors. Raises `Unencodable`."""
        if rest != [{}]:
            return encode([groups, *rest])
        values = [part for group in groups for part in (len(group), *group, *group.values())]
        known = self._values
        if known is None or len(values) != len(known) or not all(map(is_, values, known)):
            self._data = encode([groups, {}])
            self._values = values if all(map(_cannot_change, values)) else None
        return self._data


class GroupNames:
    """The parameters in the groups of an optimizer, by name, if the groups differ from those of the set-up. A newcomer has to form the
    same groups.
    """

    def __init__(self) -> None:
        self._first: dict[str, list[list[str]]] = {}
        self._changed: set[str] = set()  # optimizers

    def set_up(self, optimizers: Mapping[str, Optimizer], names: Mapping[int, str]) -> None:
        """Note the groups at the end of the set-up. `names`: of parameters, by their ids."""
        self._first = {key: _names_in(optimizer, names) for key, optimizer in optimizers.items()}

    def put(
        self, key: str, optimizer: Optimizer, groups: list[dict[str, Any]], names: Callable[[], Mapping[int, str]], closely: bool
    ) -> None:
        """Add the names to the description of the groups. Added groups are noticed at once, other changes only if `closely`."""
        first = self._first.get(key)
        if first is None or not (closely or key in self._changed or len(groups) != len(first)):
            return
        for number, now in enumerate(_names_in(optimizer, names())):
            if number >= len(first) or now != first[number]:
                self._changed.add(key)
                groups[number]["params"] = now


def _names_in(optimizer: Optimizer, names: Mapping[int, str]) -> list[list[str]]:
    return [[names.get(id(parameter), "") for parameter in group["params"]] for group in optimizer.param_groups]


def _cannot_change(value: Any) -> bool:
    return type(value) in _FIXED or (type(value) is tuple and _FIXED.issuperset(map(type, value)))


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
