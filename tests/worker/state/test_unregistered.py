"""Whether a script has cleared a container is known from what two moments encode of it."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from understudy.worker.census import leaves
from understudy.worker.encoding.codec import encode
from understudy.worker.state.unregistered import is_emptied


def encoded(value: Any) -> bytes:
    """As the census encodes an entry."""
    return encode([["module", "train", "recent", []], True, leaves.encoded(value)], flat=True)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([1.5, 2.5], [], True),
        ({"loss": [1.5]}, {}, True),
        ({1, 2}, set(), True),
        (deque([1.5, 2.5]), deque(), True),
        ([1.5], [1.5, 2.5], False),
        ([], [], False),
        (1000, 0, False),
        ("a phase", "", False),
    ],
)
def test_a_container_that_holds_less_is_emptied(before: Any, now: Any, expected: bool) -> None:
    assert is_emptied(encoded(before), encoded(now)) is expected
