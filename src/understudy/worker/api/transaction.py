"""`job.begin`: a transaction whose owner continues and commits it itself, and what that is where nothing has to be redone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from understudy.worker.step.open_transaction import OpenTransaction
from understudy.worker.step.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")


class Transaction(ABC):
    """A step or section that its owner has begun by `job.begin`, calls, and commits: for code that does not own the function of the step,
    such as an adapter of a training framework.

    After a loss, all recorded calls run again. What they change is restored before that; what the owner's code changes between them stays.
    """

    passed = False  # on a newcomer: the job has already committed it, so `call` runs nothing, and `result` is what it had
    result: Any = None

    @abstractmethod
    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Record a call and run it. After a loss it runs again, with the same arguments, and the last result is returned. Parameters and
        gradients may only be changed in such calls, and a call must not use the graph of another one's result.

        Raises `UnderstudyError` after the vote and for a tensor with a graph, and what the function raises.
        """

    @abstractmethod
    def vote(self) -> None:
        """Vote with all ranks, unless an optimizer's step has done so: from here on, nothing runs again. Raises what the calls raise."""

    @abstractmethod
    def commit(self, result: Any = None) -> None:
        """Vote, unless that is done, and commit. `result` is what a newcomer gets that passes this transaction by."""


class RecordedTransaction(Transaction):
    """A transaction of a rank that trains."""

    def __init__(self, runtime: Runtime, opened: OpenTransaction, around: FrameType | None) -> None:
        """`around`: the frame that has called the owner's code. The locals of that code belong to the transaction."""
        self._transactions, self._opened, self._unregistered = runtime.transactions, opened, runtime.state.unregistered
        self._unregistered.around(around)

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._opened.call(function, *args, **kwargs)
        return result

    def vote(self) -> None:
        self._opened.vote()

    def commit(self, result: Any = None) -> None:
        self.result = result
        self._transactions.close(self._opened, result)
        self._unregistered.around(None)


class PassedTransaction(Transaction):
    """A transaction that a newcomer passes by."""

    passed = True

    def __init__(self, result: Any) -> None:
        self.result = result

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        nothing: Any = None
        return nothing  # type: ignore[no-any-return]

    def vote(self) -> None:
        pass

    def commit(self, result: Any = None) -> None:
        pass


class PlainTransaction(Transaction):
    """A transaction without Understudy."""

    def __init__(self, committed: Callable[[], None]) -> None:
        self._committed = committed

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    def vote(self) -> None:
        pass

    def commit(self, result: Any = None) -> None:
        self.result = result
        self._committed()
