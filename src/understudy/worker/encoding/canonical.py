"""Canonical order: equal states have equal encodings, in whatever order their dicts were filled."""

from __future__ import annotations

from typing import Any

_CONTAINERS = (dict, list, tuple)  # their content may have to be put in order


def canonical(value: Any) -> Any:
    """Return the same value with every dict in one order, so that equal states have equal encodings."""
    kind = type(value)
    if kind is dict:
        kinds = set(map(type, value))
        keys = sorted(value) if kinds == {str} or kinds == {int} else sorted(value, key=lambda key: (type(key).__name__, str(key)))
        return {key: canonical(item) if type(item := value[key]) in _CONTAINERS else item for key in keys}
    if kind is list or kind is tuple:
        return kind([canonical(item) if type(item) in _CONTAINERS else item for item in value])
    return value
