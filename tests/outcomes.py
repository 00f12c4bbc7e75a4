"""The documentation of devices that fail is generated from the tests that show it (`scripts/device_outcomes.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])


def shows(seen: str, follows: str = "") -> Callable[[Test], Test]:
    """Mark a test as one that shows a row of the table. Tests of one row have the same `seen`, and one of them has what `follows`.

    Both are read from the source, so they have to be literals.
    """

    def same(test: Test) -> Test:
        return test

    return same
