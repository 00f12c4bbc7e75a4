"""Shapes in which a script may keep state, each with what changes it."""

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
import queue
import random
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

Shape = tuple[Any, Callable[[], object], str]  # what the script has as `thing`, what changes it, the way to the change


def one() -> int:
    return 1


def _twice(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 2


def two() -> int:
    return 2


class Holder:
    def __init__(self, **held: Any) -> None:
        self.__dict__ |= held

    def first(self) -> int:
        return 1

    def second(self) -> int:
        return 2


class _OtherHolder(Holder):
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


def closure() -> Shape:
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

    thing = remembers(one)
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
    holder = Holder(level=0)
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
    thing = Holder(level=0)
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
    key = Holder()
    table[key] = [0]
    return [Holder(table=table, key=key)], lambda: table[key].append(1), "thing[0].table"


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


def _object_of_a_local_class() -> Shape:
    class Local:
        level = 1

    thing = Local()
    return thing, lambda: setattr(type(thing), "level", 2), "thing.__class__.level"


def _closure_of_an_object_of_a_local_class() -> Shape:
    class Local:
        level = 1

    thing = Local()
    return lambda: thing, lambda: setattr(type(thing), "level", 2), "thing.thing.__class__.level"


def _module_made_by_hand() -> Shape:
    thing = types.ModuleType("made")
    thing.level = 1  # type: ignore[attr-defined]
    return thing, lambda: setattr(thing, "level", 2), "thing.level"


def _attribute_of_an_enum_member() -> Shape:
    class Phase(enum.Enum):
        ONE = 1

    member: Any = Phase.ONE
    member.level = 1
    return member, lambda: setattr(member, "level", 2), "thing.level"


def _masked_array() -> Shape:
    thing = numpy.ma.array([1.0, 2.0], mask=[False, True])
    return thing, lambda: thing.__setitem__(0, 3.0), "thing"


SHAPES: dict[str, Callable[[], Shape]] = {
    "an object of a class in a function": _object_of_a_local_class,
    "an object of such a class in a closure": _closure_of_an_object_of_a_local_class,
    "a module made by hand": _module_made_by_hand,
    "a masked array": _masked_array,
    "an attribute of an enum's member": _attribute_of_an_enum_member,
    "a closure": closure,
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
    "an item after 1000 others": _held([Holder(level=0) for _ in range(1500)], lambda it: setattr(it[1200], "level", 1), "[1200].level"),
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
