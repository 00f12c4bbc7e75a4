"""What a look cannot carry over is at least known when it changes: one shape after the other, changed in one place."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import csv
import enum
import functools
import hashlib
import io
import itertools
import logging
import math
import os
import queue
import random
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.worker.census.census_found import Found, script

__all__ = ["script"]

Shape = tuple[Any, Callable[[], object], str]  # what the script has as `thing`, what changes it, the way to the change


def _one() -> int:
    return 1


def _twice(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 2


def _two() -> int:
    return 2


class _Holder:
    def __init__(self, **held: Any) -> None:
        self.__dict__ |= held

    def first(self) -> int:
        return 1

    def second(self) -> int:
        return 2


class _OtherHolder(_Holder):
    pass


class _Settings(dict[str, Any]):
    pass


class _Window(collections.deque[Any]):
    pass


class _Row(tuple[Any, ...]):
    pass


class _Dice(random.Random):
    pass


class _Marked(numpy.ndarray[Any, Any]):
    pass


def _closure() -> Shape:
    count = 0

    def counts() -> int:
        nonlocal count
        count += 1
        return count

    return counts, counts, "thing.count"


def _decorated() -> Shape:
    def remembers(function: Callable[[], int]) -> Callable[[], int]:
        calls: list[int] = []

        @functools.wraps(function)
        def wrapper() -> int:
            calls.append(function())
            return len(calls)

        return wrapper

    thing = remembers(_one)
    return thing, thing, "thing.calls"


def _method_default() -> Shape:
    class Local:
        def method(self, seen: list[int] = []) -> None:  # noqa: B006
            seen.append(1)

    thing = Local()
    holder = types.SimpleNamespace(kind=Local)
    return holder, thing.method, "thing.kind.method.seen"


def _local_class() -> Shape:
    class Local:
        level = 0

    return [Local], lambda: setattr(Local, "level", 1), "thing[0].level"


def _cache() -> Shape:
    @functools.cache
    def squares(number: int) -> int:
        return number * number

    return squares, lambda: squares(3), "thing"


def _bounded_cache() -> Shape:
    @functools.lru_cache(2)
    def squares(number: int) -> int:
        return number * number

    squares(1), squares(2)
    return squares, lambda: squares(3), "thing"


def _bound_method() -> Shape:
    holder = _Holder(level=0)
    return [holder.first], lambda: setattr(holder, "level", 1), "thing[0].__self__.level"


def _partial() -> Shape:
    thing = functools.partial(max, [1])
    return [thing], lambda: thing.args[0].append(2), "thing[0].args"


def _generator() -> Shape:
    def numbers() -> Iterator[int]:
        total = 0
        while True:
            total += 1
            yield total

    thing = numbers()
    next(thing)
    return [types.SimpleNamespace(draw=thing.__next__)], lambda: next(thing), "thing[0].draw"


def _iterator(make: Callable[[], Iterator[Any]]) -> Callable[[], Shape]:
    def shape() -> Shape:
        thing = make()
        return functools.partial(next, thing), lambda: next(thing), "thing"

    return shape


def _held(thing: Any, change: Callable[[Any], object], way: str) -> Callable[[], Shape]:
    """A thing that a function of the script has captured, so that no look sees it."""
    return lambda: ((lambda: thing), lambda: change(thing), f"thing.thing{way}")


def _class_exchanged() -> Shape:
    thing = _Holder(level=0)
    return thing, lambda: setattr(thing, "__class__", _OtherHolder), "thing"


def _hook_added() -> Shape:
    module = torch.nn.Linear(2, 2)
    return module, lambda: module.register_forward_hook(lambda *given: None), "thing._forward_hooks[0]"


def _hook_of_a_tensor() -> Shape:
    tensor = torch.ones(2, requires_grad=True)
    add: Callable[..., object] = tensor.register_hook
    return tensor, lambda: add(_twice), "thing._backward_hooks[0]"


def _gradient() -> Shape:
    tensor = torch.ones(2, requires_grad=True)
    return tensor, (tensor * 2).sum().backward, "thing.grad"


def _attribute_of_a_step() -> Shape:
    wrapper = types.FunctionType(contextlib.nullcontext.__init__.__code__, {})
    return wrapper, lambda: wrapper.__dict__.update(average=1.0), "thing.average"


def _attribute_of_a_tensor() -> Shape:
    tensor = torch.ones(2)
    return tensor, lambda: setattr(tensor, "scale", 2.0), "thing.scale"


def _optimizer() -> Shape:
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    return optimizer, lambda: setattr(optimizer, "scale", 2.0), "thing.scale"


def _data_set() -> Shape:
    class Data(torch.utils.data.Dataset[int]):
        level = 0

        def __getitem__(self, number: int) -> int:
            return number

    data = Data()
    return torch.utils.data.DataLoader(data), lambda: setattr(data, "level", 1), "thing.dataset.level"


def _weak() -> Shape:
    table: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
    key = _Holder()
    table[key] = [0]
    return [_Holder(table=table, key=key)], lambda: table[key].append(1), "thing[0].table"


def _context() -> Shape:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("level", default=0)
    return [variable], lambda: variable.set(1), "thing[0].value"


def _of_thread() -> Shape:
    thing = threading.local()
    thing.level = 0
    return [thing], lambda: setattr(thing, "level", 1), "thing[0].level"


def _queue() -> Shape:
    thing: queue.Queue[int] = queue.Queue()
    return thing, lambda: thing.put(1), "thing"


def _simple_queue() -> Shape:
    thing: queue.SimpleQueue[int] = queue.SimpleQueue()
    return [thing], lambda: thing.put(1), "thing[0]"


def _retained_gradient() -> Shape:
    hidden = torch.ones(2, requires_grad=True) * 2
    hidden.retain_grad()
    loss = hidden.sum()
    return (lambda: hidden), loss.backward, "thing.hidden"


def _sobol() -> Shape:
    engine = torch.quasirandom.SobolEngine(2)  # type: ignore[no-untyped-call]
    return engine, lambda: engine.draw(1), "thing"


class _Level(enum.Enum):
    LOW = 1
    HIGH = 2


SHAPES: dict[str, Callable[[], Shape]] = {
    "a closure": _closure,
    "a decorator": _decorated,
    "a default of a method": _method_default,
    "a class in a function": _local_class,
    "a cache": _cache,
    "a bounded cache": _bounded_cache,
    "a bound method": _bound_method,
    "a partial": _partial,
    "a generator": _generator,
    "an object of another class": _class_exchanged,
    "a hook of a module": _hook_added,
    "a hook of a tensor": _hook_of_a_tensor,
    "a gradient": _gradient,
    "an attribute of a function of a library": _attribute_of_a_step,
    "an attribute of a tensor": _attribute_of_a_tensor,
    "an attribute of an optimizer": _optimizer,
    "an attribute of a data set": _data_set,
    "a weak dictionary": _weak,
    "a context variable": _context,
    "a variable of a thread": _of_thread,
    "a queue": _queue,
    "a simple queue": _simple_queue,
    "a gradient that is retained": _retained_gradient,
    "a quasi-random engine": _sobol,
    "a dict": _held({}, lambda it: it.update(level=1), ""),
    "a dict's subclass": _held(_Settings(level=0), lambda it: it.update(level=1), "['level']"),
    "a deque's subclass": _held(_Window([1]), lambda it: it.append(2), ""),
    "an item behind 1000 others": _held([_Holder(level=0) for _ in range(1500)], lambda it: setattr(it[1200], "level", 1), "[1200].level"),
    "a random generator": _held(random.Random(1), lambda it: it.random(), ""),
    "its subclass": _held(_Dice(1), lambda it: it.random(), ""),
    "numpy's generator": _held(numpy.random.default_rng(1), lambda it: it.random(), ""),
    "torch's generator": _held(torch.Generator(), lambda it: it.manual_seed(3), ""),
    "an array": _held(numpy.zeros(3), lambda it: it.fill(1), ""),
    "an array's subclass": _held(numpy.zeros(3).view(_Marked), lambda it: it.fill(1), ""),
    "an array of objects": _held(numpy.array([1, None], dtype=object), lambda it: it.__setitem__(1, 2), "[1]"),
    "a tensor": _held(torch.zeros(3), lambda it: it.fill_(1), ""),
    "what a tensor stands for": _held(torch.zeros(3), lambda it: setattr(it, "data", torch.ones(3)), ""),
    "a large tensor": _held(torch.zeros(1 << 20), lambda it: it.fill_(1), ""),
    "a sparse tensor": _held(torch.eye(3).to_sparse(), lambda it: it._values().fill_(2), ".values"),
    "a bytearray": _held(bytearray(3), lambda it: it.append(1), ""),
    "a text in memory": _held(io.StringIO("one\ntwo\n"), lambda it: it.readline(), ""),
    "bytes in memory": _held(io.BytesIO(), lambda it: it.write(b"1"), ""),
    "a hash": _held(hashlib.sha256(), lambda it: it.update(b"1"), ""),
    "a set": _held({1}, lambda it: it.add(2), ""),
    "a counter": _held(itertools.count(), next, ""),
    "an iterator of a list": _iterator(lambda: iter([1, 2, 3])),
    "an iterator of a dict": _iterator(lambda: iter({1: 2, 3: 4})),
    "a cycle": _iterator(lambda: itertools.cycle([1, 2, 3])),
    "permutations": _iterator(lambda: itertools.permutations(range(3))),
    "a product": _iterator(lambda: itertools.product([1, 2], [3, 4])),
    "a chain": _iterator(lambda: itertools.chain([1, 2], [3])),
    "a zip": _iterator(lambda: zip([1, 2], [3, 4], strict=True)),
    "a map": _iterator(lambda: map(abs, [1, 2])),
    "a slice": _iterator(lambda: itertools.islice([1, 2, 3], 3)),
    "sums": _iterator(lambda: itertools.accumulate([1, 2, 3])),
    "an enumeration": _iterator(lambda: enumerate([1, 2])),
    "a tee": _iterator(lambda: itertools.tee([1, 2])[0]),
    "lines of comma-separated values": _iterator(lambda: csv.reader(["a,b", "c,d"])),
}


def _unseen(found: Found) -> set[str]:
    found.changed()
    return {one.name for one in found.census.listed(()) if one.kind == "unseen" and "census_script" in one.root}


@pytest.mark.parametrize("name", SHAPES)
def test_a_change_is_known_with_the_way_to_it(script: Any, name: str) -> None:
    script.thing, change, way = SHAPES[name]()
    found = Found()
    assert _unseen(found) == set()
    change()
    assert any(one.startswith(way) for one in _unseen(found)), found.census.listed(())


NEW: dict[str, Any] = {
    "a function": _two,
    "a lambda": lambda: 1,
    "a partial": functools.partial(_one),
    "a method": _Holder().first,
    "a class": _Holder,
    "a function of Python": len,
    "a function of torch": torch.relu,
    "a module": torch.nn.ReLU(),
}


@pytest.mark.parametrize("new", NEW)
def test_a_name_that_is_bound_to_something_else_is_a_change(script: Any, new: str) -> None:
    script.thing = _one
    found = Found()
    script.thing = NEW[new]
    assert _unseen(found) == {"thing"}


def test_a_method_replaced_by_another_is_a_change(script: Any) -> None:
    script.thing = _Holder()
    script.thing.loss = script.thing.first
    found = Found()
    script.thing.loss = script.thing.second
    assert _unseen(found) == {"thing.loss.__func__"}


def test_a_name_that_is_bound_to_another_known_thing_is_a_change(script: Any) -> None:
    script.easy, script.hard = [1], [2]
    script.used = script.easy
    found = Found()
    script.used = script.hard
    assert _unseen(found) == {"used"}


def test_a_position_in_a_file_is_a_change(script: Any, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    with (tmp_path / "lines").open() as file:
        script.thing = file
        found = Found()
        next(file)
        assert _unseen(found) == {"thing"}


def test_a_definition_is_no_change_but_what_it_captures_may_be(script: Any) -> None:
    found = Found()
    script.turn_back, change, _ = _closure()
    script.turn_back.__qualname__ = "main.<locals>.turn_back"
    script.other, _, _ = _closure()
    assert _unseen(found) == {"other"}
    change()
    assert _unseen(found) == {"other", "turn_back.count"}


def test_what_cannot_be_read_ends_no_step(script: Any) -> None:
    class Broken(dict[str, Any]):
        def __len__(self) -> int:
            raise RuntimeError("not now")

        __iter__ = None  # type: ignore[assignment]

    with torch.inference_mode():
        script.reference = torch.ones(2)
    script.broken, script.choice, script.lazy = Broken(a=1), random.SystemRandom().choice, torch.nn.LazyLinear(2)
    script.closed = io.BytesIO()
    script.closed.close()
    found = Found()
    found.census.restore(found.census.note(), {})
    assert _unseen(found) == set()


def test_what_is_no_state_is_not_told(script: Any, tmp_path: Path) -> None:
    found = Found()
    with (tmp_path / "log").open("w") as script.log:
        script.logger, script.module, script.lock = logging.getLogger("a"), os, threading.Lock()
        assert _unseen(found) == set()


def test_what_hangs_on_a_registered_module_is_known(script: Any) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.activation, self.seen = torch.nn.Linear(2, 2), torch.relu, collections.deque[int]()

    script.net = Net()
    parts = [script.net, script.net.layer, *script.net.parameters()]
    found = Found(parts)
    with torch.no_grad():
        script.net.layer.weight.add_(1)  # registered
    assert _unseen(found) == set()
    script.net.activation = torch.sigmoid
    script.net.seen.append(1)
    script.net.layer.weight.scale = 2.0
    script.net.layer.weight.register_hook(lambda gradient: gradient * 2)
    script.net.layer.register_forward_hook(lambda *given: None)
    assert _unseen(found) == {
        *("net.activation", "net.seen", "net.layer.weight.scale", "net.layer.weight._backward_hooks[0]", "net.layer._forward_hooks[0]")
    }


def test_what_a_state_dict_forgets_is_known(script: Any) -> None:
    class Meter:
        def __init__(self) -> None:
            self._count, self.total, self.best, self.window, self.patience = 0, torch.zeros(2), 0.5, [0.25], 3

        def state_dict(self) -> dict[str, Any]:
            return {"n": self._count, "sums": [self.total.clone()]}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    script.meter = Meter()
    found = Found([script.meter])
    script.meter._count = 3
    script.meter.total.add_(1)
    assert _unseen(found) == set()
    script.meter.best = 0.75
    script.meter.window.append(0.5)
    assert _unseen(found) == {"meter.best", "meter.window"}


def test_globals_of_packages_that_the_script_names_are_known(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found()
    monkeypatch.setattr(math, "tau", 6.0)
    monkeypatch.setattr(math, "e", 2.0)  # the script does not go by it
    found.changed()
    assert {one.name for one in found.census.listed(()) if one.root == "math"} == {"tau"}


def test_hooks_of_all_modules_are_known(script: Any) -> None:
    found = Found()
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *given: None)
    try:
        found.changed()
    finally:
        handle.remove()
    assert {one.name for one in found.census.listed(()) if one.root == "torch.nn"} == {"global_forward_hooks"}


def test_the_place_in_a_sampler_is_followed_elsewhere(script: Any) -> None:
    script.sampler = torch.utils.data.DistributedSampler(range(8), num_replicas=2, rank=0)  # type: ignore[arg-type]
    found = Found()
    script.sampler.set_epoch(3)
    assert _unseen(found) == set()
    script.sampler.weight = 0.5
    assert _unseen(found) == {"sampler.weight"}


def test_containers_of_tensors_that_are_large_together_are_told(script: Any) -> None:
    script.thing = {number: torch.zeros(1 << 16) for number in range(8)}
    found = Found()
    assert found.names() == set() and found.census.news() == []
    script.thing[3].fill_(1)
    assert found.names() == set()
    assert [one.name for one in found.census.listed(()) if one.kind == "large"] == ["thing"]


def test_two_looks_at_what_does_not_change_find_nothing(script: Any) -> None:
    script.thing = [make() for make in SHAPES.values()]
    found = Found()
    assert _unseen(found) == set() and _unseen(found) == set()


class _Proxy:
    """Asks to be left alone: `__class__` of a lazy object runs its code."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            _Proxy.asked += 1
            return dict
        return object.__getattribute__(self, name)


def test_no_code_of_the_script_runs(script: Any) -> None:
    script.thing = lambda proxy=_Proxy(): proxy  # noqa: B008
    _unseen(Found())
    assert _Proxy.asked == 0


def test_what_is_ignored_is_not_told(script: Any) -> None:
    script.thing, change, _ = _closure()
    found = Found()
    found.census.ignore({"thing.count"})
    change()
    assert _unseen(found) == set()
