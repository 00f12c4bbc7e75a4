"""What the members of a group must have in common before they run a collective, for each operator."""

from __future__ import annotations

from typing import Any

import pytest
from tests.message_texts import has

from understudy.messages import calls as messages
from understudy.worker.collectives.interception import BETWEEN_TWO, OPERATORS
from understudy.worker.encoding.messages import Announced, CallSequences
from understudy.worker.verification.announcements import Sizes, announce, too_long, unlike, unlike_sequences

SUM, MAX = 0, 4


def of(*shapes: tuple[int, ...], kind: str = "float32") -> Sizes:
    return [(kind, list(shape)) for shape in shapes]


def calls(operator: str, *each: tuple[Sizes, Sizes], **arguments: Any) -> list[Announced]:
    """What each member announces, of inputs and outputs."""
    return [
        announce((10 + index, f"w{index}"), operator, arguments, inputs, outputs, index, len(each))
        for index, (inputs, outputs) in enumerate(each)
    ]


def reduced(size: Sizes, operator: str = "allreduce_", index: int = 0, **arguments: Any) -> Announced:
    return announce((index, f"w{index}"), operator, {"reduce_op": SUM, **arguments}, size, size, index, 2)


@pytest.mark.parametrize("operator", sorted(OPERATORS.keys() - {*BETWEEN_TWO, "gather_", "scatter_", "alltoall_"}))
def test_equal_calls_match(operator: str) -> None:
    arguments = {"root_rank": 0, "reduce_op": SUM, "output_split_sizes": [], "input_split_sizes": []}
    assert not unlike(calls(operator, (of((4, 2)), of((4, 2))), (of((4, 2)), of((4, 2))), **arguments))


def test_sides_are_named_with_who_is_on_them() -> None:
    two = [reduced(of((4,)), index=index) for index in range(2)]
    other = reduced(of((5, 2)), index=2)
    first = "ranks 0 (w0), 1 (w1) issue allreduce (SUM) of float32 (4,)"
    others = "rank 2 (w2) issues allreduce (SUM) of float32 (5, 2)"
    assert unlike([*two, other]) == messages.CALLS_DIFFER(first=first, others=others)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (reduced(of((4,))), reduced(of((4,)), reduce_op=MAX)),
        (reduced(of((4,))), reduced(of((4,), kind="int32"))),
        (reduced(of((4,))), reduced(of((4,), (4,)))),
        (reduced(of((4,)), "reduce_", root_rank=0), reduced(of((4,)), "reduce_", root_rank=1)),
        (reduced(of((4,))), reduced(of((4,)), "reduce_", root_rank=0)),
    ],
)
def test_sums_of_another_kind_do_not_fit(one: Announced, other: Announced) -> None:
    assert unlike([one, other]) and unlike([other, one])


def test_where_bytes_are_moved_only_their_number_counts() -> None:
    assert not unlike([reduced(of((4, 1))), reduced(of((4,)))])
    assert not unlike(calls("broadcast_", (of((4,)), of((4,))), (of((2, 2), kind="int32"), of((2, 2), kind="int32")), root_rank=1))
    assert unlike(calls("broadcast_", (of((4,)), of((4,))), (of((3,)), of((3,))), root_rank=1))
    assert unlike(calls("broadcast_", (of((4,)), of((4,))), (of((4,), kind="float64"), of((4,), kind="float64")), root_rank=1))


def test_lists_that_are_gathered_may_have_parts_of_several_sizes() -> None:
    parts = of((1,), (2,))
    assert not unlike(calls("allgather_", (of((1,)), parts), (of((2,)), parts)))
    assert unlike(calls("allgather_", (of((1,)), parts), (of((2,)), of((1,), (3,)))))
    assert not unlike(calls("reduce_scatter_", (parts, of((1,))), (parts, of((2,))), reduce_op=SUM))
    assert unlike(calls("reduce_scatter_", (parts, of((1,))), (of((2,), (2,)), of((2,))), reduce_op=SUM))


def test_only_the_root_determines_what_comes_from_all_or_goes_to_all() -> None:
    assert not unlike(calls("gather_", (of((1,)), of((1,), (2,))), (of((2,)), []), root_rank=0))
    found = unlike(calls("gather_", (of((1,)), of((1,), (2,))), (of((3,)), []), root_rank=0))
    giver = {"giver": "rank 11 (w1)", "giver_rank": 11, "given": 12, "given_call": "gather (root 0) of float32 (3,)"}
    taker = {"taker": "rank 10 (w0)", "taker_rank": 10, "taken": 8, "taken_call": "gather (root 0) of float32 (1,)"}
    assert has(found, messages.PARTS_DIFFER, **giver, **taker)
    assert not unlike(calls("scatter_", ([], of((1,))), (of((1,), (2,)), of((2,))), root_rank=1))
    found = unlike(calls("scatter_", ([], of((3,))), (of((1,), (2,)), of((2,))), root_rank=1))
    assert has(found, messages.PARTS_DIFFER, taken=12, giver_rank=11)


def test_parts_of_an_all_to_all_fit_in_pairs() -> None:
    assert not unlike(calls("alltoall_", (of((1,), (2,)), of((1,), (3,))), (of((3,), (4,)), of((2,), (4,)))))
    assert unlike(calls("alltoall_", (of((1,), (2,)), of((1,), (3,))), (of((3,), (4,)), of((5,), (4,)))))

    def base(sends: list[int], takes: list[int], index: int) -> Announced:
        arguments = {"input_split_sizes": sends, "output_split_sizes": takes}
        return announce((index, "w"), "alltoall_base_", arguments, of((sum(sends), 3)), of((sum(takes), 3)), index, 2)

    assert not unlike([base([1, 2], [1, 5], 0), base([5, 0], [2, 0], 1)])
    assert has(unlike([base([1, 2], [1, 5], 0), base([5, 0], [3, 0], 1)]), messages.PARTS_DIFFER, given=24, taker_rank=1)
    even = announce((0, "w0"), "alltoall_base_", {"input_split_sizes": [], "output_split_sizes": []}, of((4, 3)), of((4, 3)), 0, 2)
    assert even.gives == even.takes == [24, 24]
    none = announce((0, "w0"), "alltoall_base_", {"input_split_sizes": [], "output_split_sizes": []}, of((0, 3)), of((0, 3)), 0, 2)
    assert none.gives == [0, 0]


def test_a_message_fits_into_more_memory_than_it_needs() -> None:
    sent = announce((0, "w0"), "send", {}, of((4,)), [], 0, 2)
    assert not too_long(sent, announce((1, "w1"), "recv_", {}, [], of((4,)), 1, 2))
    assert not too_long(sent, announce((1, "w1"), "recv_", {}, [], of((5,)), 1, 2))
    found = too_long(sent, announce((1, "w1"), "recv_", {}, [], of((3,)), 1, 2))
    assert has(found, messages.MESSAGE_TOO_LONG, sender="rank 0 (w0)", sent=16, receiver_rank=1, expected=12)


def test_sequences_agree_within_each_group() -> None:
    def rank(worker: str, **lanes: tuple[list[int], int, int]) -> CallSequences:
        return CallSequences(worker, lanes)

    all_of_them, pair = ([0, 1, 2], 5, 77), ([0, 2], 1, 9)
    good = [rank("w0", a=all_of_them, b=pair), rank("w1", a=all_of_them), rank("w2", a=all_of_them, b=pair)]
    assert unlike_sequences(good) == ""
    who = {"group": "b", "ranks": "0, 2", "rank": 0, "worker": "w0", "count": 1, "other_rank": 2, "other_worker": "w5"}
    found = unlike_sequences([good[0], good[1], rank("w5", a=all_of_them, b=([0, 2], 1, 8))])
    assert has(found, messages.SEQUENCES_DIFFER, **who, other_count=1)
    assert has(unlike_sequences([good[0], good[1], rank("w5", a=all_of_them)]), messages.COUNTS_DIFFER, **who, other_count=0)
    assert unlike_sequences([rank("w0"), rank("w1", a=([1, 2], 1, 1)), rank("w2")])
    assert unlike_sequences([rank("w0"), rank("w1"), rank("w2")]) == ""
