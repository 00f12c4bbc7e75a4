"""Whether a value is what it was, told without encoding it: for plain values, and flat containers of these.

These are most of what a script holds. Their items cannot change, so the same items in the same container are the same value.
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
    """None of what can only be told by its content."""
    kind = type(value)
    if kind in FIXED or is_fixed(value):
        return (value,)
    try:
        if kind in _SEQUENCES:
            return (value, *value) if FIXED.issuperset(map(type, value)) else None
        if kind in _MAPPINGS:
            items = (value, *chain.from_iterable(value.items()))
            return items if FIXED.issuperset(map(type, items[1:])) else None
    except RuntimeError:  # it changes meanwhile, on a thread of the script's
        pass
    return None


def is_same(one: Sketch, other: Sketch) -> bool:
    """The same object with the same items."""
    return len(one) == len(other) and all(map(is_, one, other))


def is_equal(one: Sketch, other: Sketch) -> bool:
    """Another object, maybe, of the same kind and content."""
    if type(one[0]) is not type(other[0]) or len(one) != len(other):
        return False
    try:
        return encoded(list(one[1:] or one)) == encoded(list(other[1:] or other))
    except Unencodable:
        return False
