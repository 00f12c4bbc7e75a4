"""Rings of ranks that wait for each other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as some

from understudy.worker.verification.wait_cycles import ring


@pytest.mark.parametrize(
    ("waits", "found"),
    [
        ({}, []),
        ({0: [1]}, []),
        ({0: [1], 1: [0]}, [0, 1]),
        ({0: [0]}, [0]),
        ({0: [1], 1: [2], 2: [1]}, [1, 2]),  # to which 0 only leads
        ({0: [1, 2], 1: [3], 2: [3], 3: []}, []),  # two ways to one rank that is slow
        ({0: [1, 2], 1: [], 2: [3], 3: [0]}, [0, 2, 3]),
        ({0: [1], 2: [3], 3: [2]}, []),  # if none that 0 waits for waits itself
    ],
)
def test_rings(waits: dict[int, list[int]], found: list[int]) -> None:
    assert ring(0, lambda rank: waits.get(rank, [])) == found


@given(some.dictionaries(some.integers(0, 7), some.lists(some.integers(0, 7), max_size=4)))
def test_a_ring_is_found_if_one_can_be_reached_and_no_rank_is_read_twice(waits: Mapping[int, list[int]]) -> None:
    asked: list[int] = []

    def waits_for(rank: int) -> list[int]:
        asked.append(rank)
        return waits.get(rank, [])

    found = ring(0, waits_for)
    assert len(asked) == len(set(asked))
    for one, other in zip(found, [*found[1:], *found[:1]], strict=True):
        assert other in waits[one]
    reached, left = {0}, [0]
    while left:
        new = set(waits.get(left.pop(), [])) - reached
        reached |= new
        left += new
    stripped = {rank: set(waits.get(rank, [])) & reached for rank in reached}
    while free := [rank for rank, others in stripped.items() if not others]:
        for rank in free:
            del stripped[rank]
        stripped = {rank: others & stripped.keys() for rank, others in stripped.items()}
    assert bool(found) == bool(stripped)
