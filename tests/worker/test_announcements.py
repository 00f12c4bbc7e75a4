"""What the members of a group must have in common before they run a collective, for each operator."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.worker.encoding.messages import Announced, CallSequences
from understudy.worker.script.announcements import Sizes, announce, too_long, unlike, unlike_sequences
from understudy.worker.script.collectives import BETWEEN_TWO, OPERATORS

SUM, MAX = 0, 4


def of(*shapes: tuple[int, ...], kind: str = "float32") -> Sizes:
    return [(kind, list(shape)) for shape in shapes]


def calls(operator: str, *each: tuple[Sizes, Sizes], **arguments: Any) -> list[Announced]:
    """What each member says, of inputs and outputs."""
    return [
        announce((10 + index, f"w{index}"), operator, arguments, inputs, outputs, index, len(each))
        for index, (inputs, outputs) in enumerate(each)
    ]


def reduced(size: Sizes, operator: str = "allreduce_", index: int = 0, **arguments: Any) -> Announced:
    return announce((index, f"w{index}"), operator, {"reduce_op": SUM, **arguments}, size, size, index, 2)


@pytest.mark.parametrize("operator", sorted(OPERATORS.keys() - {*BETWEEN_TWO, "gather_", "scatter_", "alltoall_"}))
def test_what_is_the_same_fits(operator: str) -> None:
    arguments = {"root_rank": 0, "reduce_op": SUM, "output_split_sizes": [], "input_split_sizes": []}
    assert not unlike(calls(operator, (of((4, 2)), of((4, 2))), (of((4, 2)), of((4, 2))), **arguments))


def test_sides_are_named_with_who_is_on_them() -> None:
    two = [reduced(of((4,)), index=index) for index in range(2)]
    other = reduced(of((5, 2)), index=2)
    assert unlike([*two, other]) == (
        "ranks 0 (w0), 1 (w1) issue allreduce (SUM) of float32 (4,), while rank 2 (w2) issues allreduce (SUM) of float32 (5, 2)"
    )


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


def test_only_the_root_says_what_comes_from_all_or_goes_to_all() -> None:
    assert not unlike(calls("gather_", (of((1,)), of((1,), (2,))), (of((2,)), []), root_rank=0))
    found = unlike(calls("gather_", (of((1,)), of((1,), (2,))), (of((3,)), []), root_rank=0))
    assert "rank 11 (w1) issues gather (root 0) of float32 (3,) and gives 12 bytes to rank 10" in found
    assert "rank 10 (w0) issues gather (root 0) of float32 (1,) and expects 8 bytes of rank 11" in found
    assert not unlike(calls("scatter_", ([], of((1,))), (of((1,), (2,)), of((2,))), root_rank=1))
    assert "expects 12 bytes of rank 11" in unlike(calls("scatter_", ([], of((3,))), (of((1,), (2,)), of((2,))), root_rank=1))


def test_parts_of_an_all_to_all_fit_in_pairs() -> None:
    assert not unlike(calls("alltoall_", (of((1,), (2,)), of((1,), (3,))), (of((3,), (4,)), of((2,), (4,)))))
    assert unlike(calls("alltoall_", (of((1,), (2,)), of((1,), (3,))), (of((3,), (4,)), of((5,), (4,)))))

    def base(sends: list[int], takes: list[int], index: int) -> Announced:
        arguments = {"input_split_sizes": sends, "output_split_sizes": takes}
        return announce((index, "w"), "alltoall_base_", arguments, of((sum(sends), 3)), of((sum(takes), 3)), index, 2)

    assert not unlike([base([1, 2], [1, 5], 0), base([5, 0], [2, 0], 1)])
    assert "gives 24 bytes to rank 1" in unlike([base([1, 2], [1, 5], 0), base([5, 0], [3, 0], 1)])
    even = announce((0, "w0"), "alltoall_base_", {"input_split_sizes": [], "output_split_sizes": []}, of((4, 3)), of((4, 3)), 0, 2)
    assert even.gives == even.takes == [24, 24]
    none = announce((0, "w0"), "alltoall_base_", {"input_split_sizes": [], "output_split_sizes": []}, of((0, 3)), of((0, 3)), 0, 2)
    assert none.gives == [0, 0]


def test_a_message_fits_into_more_memory_than_it_needs() -> None:
    sent = announce((0, "w0"), "send", {}, of((4,)), [], 0, 2)
    assert not too_long(sent, announce((1, "w1"), "recv_", {}, [], of((4,)), 1, 2))
    assert not too_long(sent, announce((1, "w1"), "recv_", {}, [], of((5,)), 1, 2))
    assert "rank 0 (w0) sends 16 bytes" in too_long(sent, announce((1, "w1"), "recv_", {}, [], of((3,)), 1, 2))


def test_sequences_agree_within_each_group() -> None:
    def rank(worker: str, **lanes: tuple[list[int], int, int]) -> CallSequences:
        return CallSequences(worker, lanes)

    all_of_them, pair = ([0, 1, 2], 5, 77), ([0, 2], 1, 9)
    good = [rank("w0", a=all_of_them, b=pair), rank("w1", a=all_of_them), rank("w2", a=all_of_them, b=pair)]
    assert unlike_sequences(good) == ""
    assert unlike_sequences([good[0], good[1], rank("w5", a=all_of_them, b=([0, 2], 1, 8))]) == (
        "on group 'b' of ranks 0, 2 rank 0 (w0) has issued 1 collectives, "
        "while rank 2 (w5) has issued 1 collectives of another kind or size"
    )
    found = unlike_sequences([good[0], good[1], rank("w5", a=all_of_them)])
    assert "rank 2 (w5) has issued 0 collectives" in found and "of another" not in found
    assert unlike_sequences([rank("w0"), rank("w1", a=([1, 2], 1, 1)), rank("w2")])
    assert unlike_sequences([rank("w0"), rank("w1"), rank("w2")]) == ""
