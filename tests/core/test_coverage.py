"""Who has whose state, and what donors send: every byte once, from a rank that has it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.coverage import Replicas, refine, stripe

ENTRIES = st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 300), st.sets(st.integers(0, 3), min_size=1)), min_size=1)


@given(ENTRIES, st.integers(8, 64), st.integers(1, 8))
def test_every_byte_comes_once_from_a_rank_that_has_it(entries: dict[str, tuple[int, set[int]]], chunk: int, small: int) -> None:
    sizes = {name: size for name, (size, _) in entries.items()}
    donors = {name: sorted(who) for name, (_, who) in entries.items()}
    messages = stripe(9, sizes, donors, chunk, small)
    sent = Counter[tuple[str, int]]()
    for message in messages:
        assert message.newcomer == 9 and message.pieces
        assert message.size == sum(piece.stop - piece.start for piece in message.pieces) <= chunk
        for piece in message.pieces:
            assert message.donor in donors[piece.entry]
            sent.update((piece.entry, byte) for byte in range(piece.start, piece.stop))
    assert sent == Counter({(name, byte): 1 for name, size in sizes.items() for byte in range(size)})


@given(st.integers(0, 2000), st.integers(1, 7))
def test_donors_of_the_same_entries_send_the_same_share(total: int, donors: int) -> None:
    sizes = {"a": total // 3, "b": total - total // 3}
    by_donor = Counter[int]()
    for message in stripe(0, sizes, dict.fromkeys(sizes, range(1, donors + 1)), 1 << 20, 1):
        by_donor[message.donor] += message.size
    assert by_donor.total() == total
    assert all(sent <= -(-total // donors) for sent in by_donor.values())


def test_a_large_range_is_a_separate_message_and_small_ones_share_one() -> None:
    messages = stripe(1, {"large": 100, "s": 3, "t": 4}, dict.fromkeys(("large", "s", "t"), (0,)), chunk=60, small=10)
    assert [[(piece.entry, piece.start, piece.stop) for piece in message.pieces] for message in messages] == [
        [("large", 0, 60)],
        [("large", 60, 100)],
        [("s", 0, 3), ("t", 0, 4)],
    ]


def test_replicas_stay_apart_once_they_were_different() -> None:
    first = refine(None, [{"weight": 1, "moment": 0}, {"weight": 1, "moment": 0}, {"weight": 2, "moment": 0}])
    assert first.of("weight", 0) == (1,) and first.of("weight", 2) == ()
    assert first.of("moment", 0) == (1, 2), "three zeros are the same as far as is known"
    later = refine(first, [{"weight": 5, "moment": 3}, {"weight": 5, "moment": 3}, {"weight": 5, "moment": 4}])
    assert later.of("weight", 2) == (), "equal by chance: they were different before"
    assert first.parted(later) == ["moment"]
    assert later.parted(first) == [] and first.parted(Replicas({})) == [], "what is not there any more is no difference"


def test_a_rank_without_an_entry_has_no_replica_in_it() -> None:
    table = refine(None, [{"a": 1, "mine": 7}, {"a": 1}])
    assert table.of("mine", 0) == () and table.of("mine", 1) == ()
    assert table.entries(0) == ["a", "mine"] and table.entries(1) == ["a"]
    assert table.local(0) == ["mine"] and table.local(1) == []
    assert table.of("unheard of", 0) == ()
    assert refine(None, [{"a": 1}, {}, {}]).of("a", 1) == (), "that two lack it makes them no replicas"
    again = refine(table, [{"a": 2, "mine": 7}, {"a": 2, "mine": 7}])
    assert again.of("mine", 0) == (), "it came later, and nothing says that it is the same thing"
    both = refine(None, [{"mine": 7}, {"mine": 7}, {}])
    assert Replicas({"mine": (0, 0, -1)}) == both and both.parted(refine(both, [{"mine": 7}, {"mine": 7}, {"mine": 9}])) == ["mine"]


@pytest.mark.parametrize("ranks", [1, 5])
def test_nothing_to_send(ranks: int) -> None:
    assert stripe(0, {"empty": 0}, {"empty": range(1, ranks + 1)}, 64, 8) == []
    assert stripe(0, {}, {}, 64, 8) == []


def test_small_pieces_share_messages_up_to_their_limit() -> None:
    entries = {f"e{number:02}": 7 for number in range(50)}
    messages = stripe(0, entries, dict.fromkeys(entries, (1,)), 64, 8)
    assert [message.size for message in messages] == [7 * 9, 7 * 9, 7 * 9, 7 * 9, 7 * 9, 7 * 5]
    assert [piece.entry for message in messages for piece in message.pieces] == list(entries)


def test_a_rank_that_does_not_have_an_entry_any_more_has_not_parted_from_its_replicas() -> None:
    before, later = Replicas({"a": (0, 0, 0)}), Replicas({"a": (0, 0, -1)})
    assert before.parted(later) == [] == later.parted(before)
