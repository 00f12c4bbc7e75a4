"""Placement: nothing is promised twice, spares are kept away from the ranks, and missing nodes are reported."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.model import JobSpec
from understudy.core.placement import Offer, Part, place
from understudy.messages import forming


def _spec(nodes: int, workers: int, spares: int) -> JobSpec:
    return JobSpec("job", nodes * workers, workers, nodes=nodes, spares=spares)


@given(st.lists(st.integers(0, 6), max_size=6), st.integers(1, 3), st.integers(1, 3), st.integers(0, 5))
def test_what_is_promised_is_there(free: list[int], nodes: int, workers: int, spares: int) -> None:
    offers = [Offer(f"n{number}", f"d{number % 2}", count) for number, count in enumerate(free)]
    parts = place(_spec(nodes, workers, spares), offers)
    if isinstance(parts, str):
        room = sum(free) - nodes * workers
        assert sum(count >= workers for count in free) < nodes or room < spares
        return
    assert [part.rank for part in parts] == list(range(len(parts)))
    assert sum(part.spares for part in parts) == spares
    for part in parts:
        taken = part.spares + (workers if part.rank < nodes else 0)
        assert 0 < taken <= free[int(part.node[1:])]


def test_spares_are_kept_away_from_the_ranks() -> None:
    offers = [Offer("a", "rack1", 2), Offer("b", "rack1", 4), Offer("c", "rack2", 4)]
    assert place(_spec(1, 2, 2), offers) == [Part("a", 0, 0), Part("c", 1, 2)]
    assert place(_spec(1, 2, 6), offers) == [Part("a", 0, 0), Part("b", 1, 2), Part("c", 2, 4)]


def test_spares_are_spread_over_nodes_that_are_alike() -> None:
    offers = [Offer("a", "rack1", 2), Offer("b", "rack2", 5), Offer("c", "rack2", 3)]
    assert place(_spec(1, 2, 2), offers) == [Part("a", 0, 0), Part("b", 1, 1), Part("c", 2, 1)]


def test_what_is_missing() -> None:
    offers = [Offer("a", "a", 3), Offer("b", "b", 1)]
    assert place(_spec(2, 2, 0), offers) == forming.TOO_FEW_NODES(nodes="2 nodes", slots=2, fitting=1)
    assert place(_spec(1, 3, 2), offers) == forming.TOO_FEW_SLOTS(spares=2, free=1)


def test_a_spare_goes_to_a_node_without_ranks() -> None:
    parts = place(JobSpec("job", 1, 1, spares=1), [Offer("a", "x", 4), Offer("b", "x", 4)])
    assert parts == [Part("a", 0, 0), Part("b", 1, 1)]
