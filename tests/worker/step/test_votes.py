"""Numbers of a vote: those of every rank, the greatest of each element, and what follows for a field."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import or_

from hypothesis import given
from hypothesis import strategies as some

from understudy.worker.participant import Reduce, VoteField
from understudy.worker.step.votes import ballot, result

VALUES = some.integers(-(1 << 63) + 1, (1 << 63) - 1)


@some.composite
def votes(draw: some.DrawFn) -> list[list[VoteField]]:
    """Of one to five ranks, each with the same fields."""
    reduces = draw(some.lists(some.sampled_from(Reduce), max_size=6))
    known = draw(some.lists(VALUES, min_size=1, max_size=3))  # few, so that ranks often vote the same

    def value(reduce: Reduce) -> some.SearchStrategy[int | None]:
        said = some.sampled_from(known)
        return some.one_of(said, some.none()) if reduce is Reduce.EQUAL else said

    reduces = [reduce if reduce is not Reduce.ANY or min(known) >= 0 else Reduce.GREATEST for reduce in reduces]  # bits have no sign
    ranks = draw(some.integers(1, 5))
    return [[VoteField(f"field {n}", reduce, draw(value(reduce))) for n, reduce in enumerate(reduces)] for _ in range(ranks)]


def agreed(ranks: Sequence[Sequence[VoteField]]) -> dict[str, int | None]:
    """What every rank gets; the same on each."""
    ballots = [ballot(fields) for fields in ranks]
    greatest = [max(numbers) for numbers in zip(*(numbers for numbers, _ in ballots), strict=True)]
    bits = [functools.reduce(or_, one) for one in zip(*(bits for _, bits in ballots), strict=True)]
    found = [result(fields, greatest, bits) for fields in ranks]
    assert all(one == found[0] for one in found)
    return found[0]


@given(votes())
def test_a_field_is_the_result_of_its_reduction(ranks: list[list[VoteField]]) -> None:
    found = agreed(ranks)
    for fields in zip(*ranks, strict=True):
        name, reduce, _ = fields[0]
        said = [field.value for field in fields if field.value is not None]
        if reduce is Reduce.GREATEST:
            assert found[name] == max(said)
        elif reduce is Reduce.ANY:
            assert found[name] == functools.reduce(or_, said)
        else:
            assert found[name] == (said[0] if len(set(said)) == 1 else None)


@given(votes())
def test_numbers_fit_into_a_vector_of_64_bits(ranks: list[list[VoteField]]) -> None:
    for fields in ranks:
        numbers, bits = ballot(fields)
        assert all(-(1 << 63) <= number < 1 << 63 for number in numbers) and all(0 <= some < 1 << 64 for some in bits)
