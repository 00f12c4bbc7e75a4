"""The text about losing a whole node or failure domain."""

from __future__ import annotations

import pytest

from understudy.core.buddies import Place
from understudy.worker.verification.coverage_report import together

FOUR = [Place("rack0", "a"), Place("rack0", "a"), Place("rack1", "b"), Place("rack1", "b")]
RACKS = [Place("rack0", "a"), Place("rack0", "b"), Place("rack1", "c"), Place("rack1", "d")]


@pytest.mark.parametrize(
    ("places", "pairs", "said"),
    [
        ([Place("a", "a")] * 4, [(0, 1), (2, 3)], ""),
        (FOUR, [(0, 2), (1, 3)], "; so is that of any one node"),
        (FOUR, [(0, 1), (2, 3)], "; the loss of node a (and 1 more) is NOT survived: no other rank has all of the state of ranks 0, 1"),
        (RACKS, [(0, 2), (1, 3)], "; so is that of any one node; so is that of any one failure domain"),
        (
            RACKS,
            [(0, 1), (2, 3)],
            "; so is that of any one node; the loss of failure domain rack0 (and 1 more) is NOT survived: no other rank has all of "
            "the state of ranks 0, 1",
        ),
    ],
)
def test_losing_many_at_once(places: list[Place], pairs: list[tuple[int, int]], said: str) -> None:
    held = {rank: [tuple(other for pair in pairs if rank in pair for other in pair if other != rank)] for rank in range(4)}
    assert together(held, places) == said


def test_copies_that_would_be_lost_too_count() -> None:
    """All have the same state, but with three of four ranks on one node both buddies of one are there."""
    places = [Place("a", "a"), Place("a", "a"), Place("a", "a"), Place("b", "b")]
    held = {rank: [tuple(other for other in range(4) if other != rank)] for rank in range(4)}
    assert "the loss of node a is NOT survived" in together(held, places)
