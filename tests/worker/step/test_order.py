"""Each method is called of every participant that has it, in order, and of no other."""

from __future__ import annotations

import inspect

import pytest
from tests.worker.steps import step_of

from understudy.worker.participant import Participant, Reduce, Step, VoteField, VoteResult
from understudy.worker.step.order import Order

METHODS = [name for name, _ in inspect.getmembers(Participant, inspect.isfunction)]


class Noting(Participant):
    """Has two of the methods."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self._name, self._calls = name, calls

    def begin(self, step: Step) -> None:
        self._calls.append(f"{self._name} begins {step.function}")

    def failed(self, step: Step, error: BaseException) -> None:
        self._calls.append(f"{self._name} hears of {error}")

    def vote_fields(self) -> tuple[VoteField, ...]:
        return (VoteField(self._name, Reduce.GREATEST, 1),)


class Reading(Participant):
    def __init__(self) -> None:
        self.read: list[VoteResult] = []

    def voted(self, result: VoteResult) -> None:
        self.read.append(result)


def test_they_are_called_in_order() -> None:
    calls, reading = list[str](), Reading()
    order = Order([Noting("one", calls), reading, Noting("two", calls)])
    order.begin(step_of("train"))
    order.failed(step_of("train"), ValueError("three"))
    assert calls == ["one begins train", "two begins train", "one hears of three", "two hears of three"]
    assert [field.name for field in order.vote_fields()] == ["one", "two"]
    order.voted({"one": 1})
    assert reading.read == [{"one": 1}]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_port_is_passed_on(name: str) -> None:
    """One that `Order` had forgotten would never be called."""
    heard = list[str]()

    class One(Participant):
        pass

    def hear(self: One, *given: object) -> tuple[()]:
        heard.append(name)
        return ()

    setattr(One, name, hear)
    step = step_of()
    given: tuple[object, ...] = {"voted": ({},), "vote_fields": (), "failed": (step, ValueError())}.get(name, (step,))
    getattr(Order([One()]), name)(*given)
    assert heard == [name]
