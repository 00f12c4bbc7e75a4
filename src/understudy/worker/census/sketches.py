"""Detects whether a value has changed, without encoding it: for plain values, and flat containers of these.

Most values of a script are of this kind. Their items cannot change, so the same items in the same container are the same value.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from itertools import chain
from operator import is_
from typing import Any

from understudy.worker.census.leaves import FIXED, encoded, is_fixed
from understudy.worker.encoding.codec import Unencodable

Sketch = tuple[Any, ...]  # the value itself, and its items

_SEQUENCES, _MAPPINGS = (list, tuple, deque), (dict, OrderedDict, Counter, defaultdict)


def sketch(value: Any) -> Sketch | None:
    """Return a sketch; None for a value that can only be compared by its content."""
    kind = type(value)
    if kind in FIXED or is_fixed(value):
        return (value,)
    try:
        if kind in _SEQUENCES:
            return (value, *value) if FIXED.issuperset(map(type, value)) else None
        if kind in _MAPPINGS:
            items = (value, *chain.from_iterable(value.items()))
            return items if FIXED.issuperset(map(type, items[1:])) else None
    except RuntimeError:  # another thread of the script changes it meanwhile
        pass
    return None


def is_same(one: Sketch, other: Sketch) -> bool:
    """Return whether it is the same object with the same items."""
    return len(one) == len(other) and all(map(is_, one, other))


def is_equal(one: Sketch, other: Sketch) -> bool:
    """Return whether it is an object, maybe another one, of the same kind and content."""
    if type(one[0]) is not type(other[0]) or len(one) != len(other):
        return False
    try:
        return encoded(list(one[1:] or one)) == encoded(list(other[1:] or other))
    except Unencodable:
        return False
