"""Buddies are outside of the rank's domain if possible, and no rank keeps more copies than another."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.buddies import COUNT, Place, buddies

DOMAINS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=5)  # ranks on each node of each domain


def _places(domains: list[list[int]], order: list[int]) -> list[Place]:
    places = [
        Place(f"d{domain}", f"d{domain}n{node}")
        for domain, nodes in enumerate(domains)
        for node, ranks in enumerate(nodes)
        for _ in range(ranks)
    ]
    return [places[index] for index in sorted(range(len(places)), key=lambda index: (order[index % len(order)], index))]


@given(DOMAINS, st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_everyone_keeps_as_many_and_none_is_its_own(domains: list[list[int]], order: list[int]) -> None:
    places = _places(domains, order)
    table = buddies(places)
    wanted = min(COUNT, len(places) - 1)
    assert all(len(set(keepers)) == wanted and rank not in keepers for rank, keepers in enumerate(table))
    assert set(Counter(keeper for keepers in table for keeper in keepers).values()) <= {wanted}


@given(DOMAINS, st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_a_domain_that_fails_takes_no_rank_and_all_its_copies_with_it(domains: list[list[int]], order: list[int]) -> None:
    places = _places(domains, order)
    table = buddies(places)
    for kind in ("domain", "node"):
        groups = [getattr(place, kind) for place in places]
        if 2 * max(Counter(groups).values()) <= len(places):
            assert all(any(groups[keeper] != groups[rank] for keeper in keepers) for rank, keepers in enumerate(table)), kind


def test_one_node_of_each_of_two_racks() -> None:
    places = [Place("rack 0", "a"), Place("rack 0", "b"), Place("rack 1", "c"), Place("rack 1", "d")]
    assert buddies(places)[0][0] == 2
    assert buddies(places)[3][0] == 1


def test_of_three_racks_any_two_may_fail() -> None:
    """The rank in the third, or one of the copies: so the two are on the two other racks. The same with nodes of one rack."""
    racks = [Place(f"rack {number}", f"{number}") for number in range(3) for _ in range(2)]
    nodes = [Place("rack", f"{number}") for number in range(3) for _ in range(2)]
    for places in (racks, nodes):
        for rank, keepers in enumerate(buddies(places)):
            assert {places[one] for one in (rank, *keepers)} == set(places)


def test_one_rank_alone() -> None:
    assert buddies([Place("", "a")]) == [()]


def test_ranks_of_one_node_keep_the_copies_of_their_neighbours() -> None:
    assert buddies([Place("", "a")] * 2) == [(1,), (0,)]
    assert buddies([Place("", "a")] * 3) == [(1, 2), (2, 0), (0, 1)]
    assert buddies([Place("", "a")] * 4) == [(1, 2), (2, 3), (3, 0), (0, 1)]


def test_where_nodes_are_uneven_the_next_node_is_near() -> None:
    places = [Place("d0", node) for node in ("a", "a", "a", "b", "c", "d")] + [Place("d1", "a"), Place("d2", "d")]
    assert buddies(places) == [(3, 4), (4, 5), (5, 6), (6, 7), (7, 0), (0, 1), (1, 2), (2, 3)]
