"""Values of a script: encoded alike if they are alike, and set in place where other names may refer to the same object."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from typing import Any

import numpy
import pytest
import torch

from understudy.worker.census.leaves import LARGEST, Unfit, encoded, is_leaf, put_into
from understudy.worker.encoding.codec import Unencodable


class Mode(Enum):
    WARM_UP = 1
    MAIN = 2


def same(one: Any, other: Any) -> bool:
    return encoded(one) == encoded(other)


def filled(kind: Any) -> Any:
    found = defaultdict(list)
    found["a"].append(1.5)
    return {
        list: [1, [2.5, "x"], {"k": torch.ones(2)}],
        dict: {"best": float("inf"), 3: (1, 2)},
        OrderedDict: OrderedDict([("b", 1), ("a", torch.zeros(3))]),
        Counter: Counter("abca"),
        set: {1, 2, 3},
        deque: deque([1.0, torch.ones(1)], maxlen=4),
        defaultdict: found,
    }[kind]


@pytest.mark.parametrize("kind", [list, dict, OrderedDict, Counter, set, deque, defaultdict])
def test_a_container_stays_the_object_that_it_is(kind: Any) -> None:
    theirs = filled(kind)
    mine = deque(maxlen=4) if kind is deque else defaultdict(list) if kind is defaultdict else kind()
    assert is_leaf(theirs) and not same(mine, theirs)
    assert put_into(mine, encoded(theirs)) is mine and type(mine) is kind and same(mine, theirs)


def test_containers_in_containers_stay_too_and_tensors_in_them_do_not() -> None:
    inner, shadow = [1], torch.zeros(2)
    mine: dict[str, Any] = {"inner": inner, "shadow": shadow}
    put_into(mine, encoded({"inner": [1, 2], "shadow": torch.tensor([3.0, 4.0])}))
    assert mine["inner"] is inner == [1, 2] and mine["shadow"].tolist() == [3.0, 4.0] and shadow.sum() == 0


def test_a_value_of_its_own_is_set_in_place() -> None:
    data = torch.zeros(4, 2)
    mine: dict[str, Any] = {"part": data[1], "table": numpy.zeros(2)}
    put_into(mine, encoded({"part": torch.ones(2), "table": numpy.ones(2)}), own=True)
    assert data.sum() == 2 and mine["table"].sum() == 2


def test_a_parameter_is_set_without_a_gradient() -> None:
    mine = torch.nn.Parameter(torch.zeros(3))
    assert put_into(mine, encoded(torch.nn.Parameter(torch.ones(3)))) is mine
    assert mine.tolist() == [1.0, 1.0, 1.0] and mine.grad_fn is None and mine.requires_grad


def test_a_part_of_another_tensor_or_array_is_not_written_over() -> None:
    data, table = torch.zeros(4, 2), numpy.zeros((4, 2))
    new = put_into(data[1], encoded(torch.ones(2)))
    newer = put_into(table[1], encoded(numpy.ones(2)))
    assert data.sum() == 0 and table.sum() == 0 and new.tolist() == newer.tolist() == [1.0, 1.0]


def test_memory_of_a_file_is_not_written_over() -> None:
    frozen = numpy.ones(3)
    frozen.flags.writeable = False
    assert put_into(frozen, encoded(numpy.zeros(3))) is not frozen and frozen.sum() == 3
    held = torch.from_numpy(numpy.ones(3))  # perhaps of a mapped file: that is unknown
    assert put_into(held, encoded(torch.zeros(3, dtype=torch.float64))) is not held and held.sum() == 3


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: random.Random(1), lambda it: it.random()),
        (lambda: numpy.random.default_rng(1), lambda it: it.random()),
        (lambda: numpy.random.RandomState(1), lambda it: it.random_sample()),
        (lambda: torch.Generator().manual_seed(1), lambda it: torch.rand(1, generator=it).item()),
    ],
)
def test_a_generator_goes_on_where_the_other_one_is(make: Any, draw: Any) -> None:
    mine, theirs = make(), make()
    for _ in range(3):
        draw(theirs)
    assert not same(mine, theirs) and put_into(mine, encoded(theirs)) is mine
    assert [draw(mine) for _ in range(5)] == [draw(theirs) for _ in range(5)]


def test_a_member_of_an_enum_is_found_in_its_class() -> None:
    assert put_into(Mode.WARM_UP, encoded(Mode.MAIN)) is Mode.MAIN
    with pytest.raises(Unfit, match="no place"):
        put_into("warm up", encoded(Mode.MAIN))


@pytest.mark.parametrize("value", [object(), open, iter([1]), [object()], {"k": object()}, {torch.ones(1): 1}])
def test_a_value_that_cannot_be_moved_is_no_leaf(value: Any) -> None:
    assert not is_leaf(value)


def test_what_hangs_on_a_graph_is_no_leaf() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    assert is_leaf(weight) and not is_leaf(weight * 2) and not is_leaf([weight * 2])


def test_too_much_is_refused() -> None:
    with pytest.raises(Unencodable, match="more than"):
        encoded([torch.zeros(LARGEST)])
    with pytest.raises(Unencodable, match="more than"):
        encoded("x" * (3 * LARGEST))
