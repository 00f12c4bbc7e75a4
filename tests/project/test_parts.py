"""Parts of long runs are together the whole."""

from __future__ import annotations

import pytest
from tests.parts import part_of


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_are_the_whole_without_repeats(count: int) -> None:
    found = [entry for number in range(1, count + 1) for entry in part_of(range(5), f"{number}/{count}")]
    assert sorted(found) == list(range(5))


@pytest.mark.parametrize("part", ["", "0/3", "4/3", "1", "a/b", "1/0", "-1/3"])
def test_what_is_no_part_is_refused(part: str) -> None:
    with pytest.raises(ValueError):
        part_of([1], part)
