"""State anywhere: a thing that changes, in nested places. Each change is carried over or reported, whatever hides it."""

from __future__ import annotations

import collections
import functools
import io
import itertools
import queue
import random
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.worker.census.census_found import Found, script

__all__ = ["script"]

Place = Callable[[Any], Any]  # contains a thing


class _Plain:
    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def method(self) -> None: ...


class _Slots:
    __slots__ = ("kept",)

    def __init__(self, kept: Any) -> None:
        self.kept = kept


class _Mapping(dict[str, Any]):
    pass


class _Items(list[Any]):
    pass


class _Row(tuple[Any, ...]):
    pass


@dataclass(frozen=True)
class _Frozen:
    kept: Any


def _closure(kept: Any) -> Any:
    def function() -> Any:
        return kept

    return function


def _default(kept: Any) -> Any:
    def function(given: Any = kept) -> Any:
        return given

    return function


def _attribute_of_a_function(kept: Any) -> Any:
    def function() -> None: ...

    function.__dict__["kept"] = kept
    return function


def _decorated(kept: Any) -> Any:
    @functools.wraps(_default)
    def function() -> Any:
        return kept

    return function


def _of_a_class(kept: Any) -> Any:
    return type("Local", (), {"__module__": __name__, "kept": kept})


def _generator(kept: Any) -> Any:
    def items(item: Any) -> Any:
        while True:
            yield item

    running = items(kept)
    next(running)
    return _Plain(running.send)


def _queue(kept: Any) -> Any:
    found: queue.Queue[Any] = queue.Queue()
    found.put(kept)
    return found


def _array(kept: Any) -> Any:
    found = numpy.empty(2, dtype=object)
    found[1] = kept
    return found


PLACES: dict[str, Place] = {
    "an attribute": _Plain,
    "a slot": _Slots,
    "a frozen object": _Frozen,
    "a namespace": lambda kept: types.SimpleNamespace(kept=kept),
    "a list": lambda kept: [None, kept],
    "a tuple": lambda kept: (kept, 1),
    "a tuple's subclass": lambda kept: _Row([kept]),
    "a list's subclass": lambda kept: _Items([kept]),
    "a dict": lambda kept: {"kept": kept},
    "a dict by an object": lambda kept: {_Plain: kept},
    "a dict's subclass": lambda kept: _Mapping(kept=kept),
    "a deque": lambda kept: collections.deque([kept]),
    "a closure": _closure,
    "a default": _default,
    "an attribute of a function": _attribute_of_a_function,
    "a decorator": _decorated,
    "a partial": lambda kept: functools.partial(max, kept),
    "a bound method": lambda kept: _Plain(kept).method,
    "a class": _of_a_class,
    "a generator": _generator,
    "a queue": _queue,
    "an array of objects": _array,
    "a read-only view": lambda kept: types.MappingProxyType({"kept": kept}),
    "a chain": lambda kept: itertools.cycle([kept]),
}
THINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "a list": (lambda: [1], lambda it: it.append(2)),
    "a dict": (lambda: {"level": 1}, lambda it: it.update(level=2)),
    "a set": (lambda: {1}, lambda it: it.add(2)),
    "a deque": (lambda: collections.deque([1], maxlen=1), lambda it: it.append(2)),
    "a tensor": (lambda: torch.zeros(3), lambda it: it.fill_(1)),
    "a large tensor": (lambda: torch.zeros(1 << 19), lambda it: it.fill_(1)),
    "large tensors together": (lambda: [torch.zeros(1 << 17) for _ in range(3)], lambda it: it[1].fill_(1)),
    "an array": (lambda: numpy.zeros(3), lambda it: it.fill(1)),
    "a random generator": (lambda: random.Random(1), lambda it: it.random()),
    "an object": (lambda: _Plain(1), lambda it: setattr(it, "kept", 2)),
    "another class": (lambda: _Plain(1), lambda it: setattr(it, "__class__", type("Other", (_Plain,), {"__module__": __name__}))),
    "a text in memory": (lambda: io.StringIO("one\ntwo"), lambda it: it.readline()),
    "a function": (lambda: _closure([1]), lambda it: it().append(2)),
    "a module": (lambda: torch.nn.Linear(2, 2), lambda it: it.weight.data.add_(1)),
    "a hook": (lambda: torch.nn.Linear(2, 2), lambda it: it.register_forward_hook(lambda *given: None)),
    "a bytearray": (lambda: bytearray(2), lambda it: it.append(1)),
}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.sampled_from(sorted(PLACES)), max_size=3), thing=st.sampled_from(sorted(THINGS)))
def test_a_change_is_carried_over_or_reported(script: Any, places: list[str], thing: str) -> None:
    make, change = THINGS[thing]
    script.hidden = inner = make()
    for place in places:
        script.hidden = PLACES[place](script.hidden)
    found = Found(set_up=False)
    found.census.ignore({"inner", "make", "change", "before", "known"})  # of this function
    found.census.set_up()
    assert not _known(found)
    change(inner)
    assert _known(found), (places, thing, found.census.listed(()))


def _known(found: Found) -> set[str]:
    names = found.names() | {one.name for one in found.census.listed(()) if one.kind != "ignored"}
    return {name for name in names if name.startswith("hidden")}
