"""Digests of batches and arguments: every change shows, and what cannot be read is named."""

from __future__ import annotations

import functools
import io
import re
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch
from tests.message_texts import has, refused

from understudy.messages import script
from understudy.worker.encoding.contents import content_of
from understudy.worker.errors import UsageError
from understudy.worker.guards.arguments import Arguments

Pair = namedtuple("Pair", "x y")


@dataclass
class Batch:
    x: torch.Tensor
    names: list[str]


class Slots:
    __slots__ = ("x",)

    def __init__(self, x: float) -> None:
        self.x = x


class Cyclic:
    def __init__(self, x: int) -> None:
        self.me, self.x = self, x


PAIRS: list[tuple[Any, Any]] = [
    (torch.zeros(2), torch.ones(2)),
    (torch.zeros(2, 1), torch.zeros(1, 2)),
    (torch.zeros(2), -torch.zeros(2)),
    (torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16)),
    (torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse()),
    (numpy.zeros(2), numpy.ones(2)),
    (numpy.zeros(4), numpy.zeros((2, 2))),
    (numpy.array(["a", None], dtype=object), numpy.array(["b", None], dtype=object)),
    ([1, [2]], [[1], 2]),
    ({"a": 1}, {"a": 2}),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    (UserDict(x=torch.zeros(1)), UserDict(x=torch.ones(1))),
    (Pair(1, 2), Pair(2, 1)),
    (Batch(torch.zeros(1), ["a"]), Batch(torch.zeros(1), ["b"])),
    (Slots(1.0), Slots(2.0)),
    (Cyclic(1), Cyclic(2)),
    ({1, 2}, {1, 3}),
    (1, True),
    ("1", 1),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_difference_shows(one: Any, other: Any) -> None:
    assert content_of(one).all != content_of(other).all
    assert content_of(one) == content_of(one) and not content_of(one).opaque


class Partial(functools.partial):  # type: ignore[type-arg]
    pass


OPAQUE = [io.StringIO(), iter([1]), {"a": [1, object()]}, {"b": iter("a")}, functools.partial(print, 1), re.compile("a"), Partial(print, 1)]


@pytest.mark.parametrize("thing", OPAQUE)
def test_what_cannot_be_read_is_named(thing: Any) -> None:
    assert content_of(thing).opaque


def test_modules_and_what_has_a_state_are_no_data() -> None:
    layer = torch.nn.Linear(1, 1)
    assert content_of(layer) == content_of(torch.nn.Linear(1, 1)) and not content_of([layer, torch.optim.SGD(layer.parameters())]).opaque


@pytest.mark.parametrize("kind", ["tensor", "array", "pop", "list"])
def test_arguments_that_are_changed_in_place(kind: str) -> None:
    batch: dict[str, Any] = {"tensor": torch.zeros(2), "array": numpy.zeros(2), "list": [1]}
    arguments = Arguments("step", [(batch,), {}], closely=True)
    assert arguments.check(redone=False) == ""
    if kind == "tensor":
        batch["tensor"].add_(1)
    elif kind == "array":
        batch["array"] += 1
    elif kind == "pop":
        batch.pop("list")
    else:
        batch["list"].append(2)
    with refused(UsageError, script.ARGUMENTS_CHANGED, function="step"):
        arguments.check(redone=False)
    with refused(UsageError, script.ARGUMENTS_CHANGED_IN_REDO, function="step"):
        arguments.check(redone=True)


def test_an_object_among_the_arguments_that_changes_is_reported() -> None:
    batch = Batch(torch.zeros(1), [])
    arguments = Arguments("step", [(batch,), {}], closely=True)
    batch.names.append("x")
    assert has(arguments.check(redone=False), script.ARGUMENT_OBJECT_CHANGED, function="step")
