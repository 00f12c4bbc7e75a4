"""`job.attempts()`: a transaction whose code is written in the loop itself.

    for attempt in job.attempts():
        with attempt:
            loss = model(batch).sum()
            loss.backward()
            optimizer.step()

The block is the function of the transaction. It has no parameters, so the names that it reads take the place of arguments, and the names
that are read after it take the place of a result:

- A name that the block binds is bound as before for a redo.
- What it reads of the iteration it is in, such as the batch, must not be changed in place (`guards.arguments`). What the loop carries
  from one iteration to the next is restored by the census.
- A newcomer that passes the block is given the names that the block has set and the script reads after it.

Known limits: `census.block_names` finds these names in the source.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Literal

from understudy.messages import script
from understudy.worker.census import leaves, left_names
from understudy.worker.census.block_names import BlockNames, names_of_block
from understudy.worker.errors import UsageError, errors_of_functions
from understudy.worker.participant import Step
from understudy.worker.step.runtime import Runtime


class PlainAttempts:
    """The only attempt, without Understudy."""

    def __init__(self, committed: Callable[[], None]) -> None:
        self._committed, self._over = committed, False

    def __iter__(self) -> PlainAttempts:
        return self

    def __next__(self) -> PlainAttempts:
        if self._over:
            raise StopIteration
        self._over = True
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        if error is None:
            self._committed()
        return False


class Attempts:
    """The attempts of one transaction: an iterator that gives itself, as a context manager, until one attempt is committed."""

    def __init__(self, runtime: Runtime, kind: str) -> None:
        self._runtime, self._kind = runtime, kind
        self._step: Step | None = None  # once it has begun
        self._begun = self._over = False
        self._bound: dict[str, Any] = {}  # names that the block binds, as of the begin
        self._names = BlockNames()

    def __iter__(self) -> Attempts:
        return self

    def __next__(self) -> Attempts:
        if self._over:
            raise StopIteration
        if not self._begun:
            self._begun = True
            self._names = names_of_block(frame := sys._getframe(1))
            passed, kept = self._runtime.passes(self._kind)
            if passed:
                left_names.put_all(frame, kept or {})
                raise StopIteration
        elif self._step is None:
            raise UsageError(script.ATTEMPT_NOT_ENTERED(place=self._names.where))
        return self

    def __enter__(self) -> None:
        transactions = self._runtime.transactions
        frame = sys._getframe(1)
        if self._step is None:
            there = left_names.names_in(frame)
            given = {name: there[name] for name in self._names.given if name in there}
            self._bound = {name: there[name] for name in self._names.bound if name in there}
            self._runtime.state.unregistered.around(frame)
            self._step = transactions.begin(self._kind, self._names.where, given)
        transactions.attempt(self._step)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        transactions, step, frame = self._runtime.transactions, self._step, sys._getframe(1)
        assert step is not None
        try:
            if error is None:
                step.result = self._result(frame)
                transactions.end(step)
        except errors_of_functions() as failed:
            error, kind = failed, None
        if error is None:
            self._over = True
            transactions.commit(step)
            self._runtime.state.unregistered.around(None)
            return False
        if isinstance(error, errors_of_functions()) and transactions.rolled_back(step, error):
            left_names.put_all(frame, self._bound)
            return True
        self._over = True
        self._runtime.state.unregistered.around(None)
        if kind is None:
            raise error
        return False

    def _result(self, frame: FrameType) -> dict[str, Any]:
        """Return the values of the names that are read after the block."""
        there = left_names.names_in(frame)
        left = {name: there[name] for name in self._names.left if name in there}
        if missed := [name for name, value in left.items() if leaves.is_large(value) or not leaves.is_leaf(value)]:
            self._runtime.notices.tell(script.NAMES_OF_BLOCK(names=", ".join(missed[:4]), place=self._names.where))
        return {name: value for name, value in left.items() if name not in missed}
