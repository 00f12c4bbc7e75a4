"""What a script may make a transaction of: its functions, its objects, and its name."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from understudy.worker.callables import name_of, parts_of, returns_nothing


def train(state: dict[str, float], batch: int) -> int:
    return batch


class Trainer:
    def step(self, batch: int) -> int:
        return batch

    def __call__(self, batch: int) -> int:
        return batch

    @classmethod
    def of_class(cls, batch: int) -> int:
        return batch


TRAINER, STATE = Trainer(), {"mean": 1.0}
PARTIAL = functools.partial(functools.partial(train, STATE), batch=1)


@pytest.mark.parametrize(
    ("function", "functions", "bound", "name"),
    [
        (train, (train,), {}, "train"),
        (TRAINER.step, (Trainer.step,), {"self": TRAINER}, "Trainer.step"),
        (Trainer.of_class, (Trainer.__dict__["of_class"].__func__,), {"self": Trainer}, "Trainer.of_class"),
        (TRAINER, (Trainer.__call__,), {"self": TRAINER}, "Trainer"),
        (PARTIAL, (train,), {"arguments[0]": STATE, "batch": 1}, "train"),
        (functools.partial(TRAINER.step, batch=1), (Trainer.step,), {"self": TRAINER, "batch": 1}, "Trainer.step"),
        (functools.partial(TRAINER, 1), (Trainer.__call__,), {"self": TRAINER, "arguments[0]": 1}, "Trainer"),
        (max, (), {"self": max}, "max"),
    ],
)
def test_a_callable_is_taken_apart(function: Any, functions: tuple[Any, ...], bound: dict[str, Any], name: str) -> None:
    parts = parts_of(function)
    assert parts.functions == functions
    assert parts.bound.keys() == bound.keys() and all(parts.bound[key] is value for key, value in bound.items())
    assert name_of(function) == name


def test_a_callable_that_is_annotated_to_return_nothing() -> None:
    def nothing() -> None: ...

    def something() -> int:
        return 1

    def unknown():  # type: ignore[no-untyped-def]
        ...

    assert returns_nothing(nothing) and returns_nothing(functools.partial(nothing))
    assert not any(map(returns_nothing, (something, unknown, max, functools.partial(unknown))))
