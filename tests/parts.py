"""Parts of long runs: each ends within an hour, and together they are the whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def part_of(everything: Sequence[T], part: str) -> list[T]:
    """Return part "K/N": every N-th entry, beginning with the K-th. Raises `ValueError`."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"{part!r} is not K/N with K from 1 to N")
    return list(everything[int(found[1]) - 1 :: int(found[2])])
