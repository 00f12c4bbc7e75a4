"""A transaction whose owner does not own the function of the step: an adapter that wraps the methods of a training framework.

    begin        state as of here is what a redo starts from
    call(fn)     recorded, and run; after a failure all recorded calls are run again, and the caller gets the last one's result
    vote         with all ranks; before an optimizer's step it happens by itself
    commit

What a redo restores is what the recorded calls change. What the owner's own code changes between them stays: before a call is run again,
values, buffers and random streams that had changed since the call before are set as they were at its first run. Gradients and parameters
belong to calls alone, because a redo computes them again: the owner's code must not change them before the vote.

A call gets no gradient, and no tensor with a graph, which are of one attempt only, as in `call(loss.backward)`: it would run again with
those of the interrupted attempt. Forward and backward are one call.

Known limits: a buffer that the owner's own code changes by a kernel that does not count it (a forward of batch norm), or through `.data`,
is as of the begin in a redo. Other objects that a call has made, and another one gets, are those of the first attempt in a redo, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from understudy.messages import transactions as texts
from understudy.worker.callables import name_of
from understudy.worker.errors import UsageError, errors_of_functions
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Step
from understudy.worker.state.history import has_history
from understudy.worker.state.registry import State
from understudy.worker.state.tensors import changes, counts_changes, local_tensor


@dataclass(frozen=True)
class _Moment:
    """The state between two calls, as far as it shows what has changed."""

    streams: dict[str, bytes]
    values: Mapping[str, bytes]
    buffers: Mapping[str, int]  # how often each was changed
    computed: Mapping[str, tuple[int, int]]  # the same of parameters and gradients, with the identity of the object

    @staticmethod
    def of(state: State) -> _Moment:
        buffers = {name: changes(tensor) for name, tensor in state.mutable_tensors() if counts_changes(tensor)}
        computed = {}
        for name, parameter in state.parameters():
            computed[name] = id(parameter), changes(parameter) if counts_changes(parameter) else 0
            if (gradient := parameter.grad) is not None:
                computed[f"{name}/gradient"] = id(gradient), changes(gradient)
        return _Moment(state.randomness.capture(), state.encoded_values(closely=False), buffers, computed)


@dataclass(frozen=True)
class _Between:
    """The changes of the owner's code since the call before."""

    streams: dict[str, bytes]
    values: Mapping[str, bytes]
    buffers: Mapping[str, torch.Tensor]

    def set_again(self, state: State) -> None:
        state.randomness.restore(self.streams)
        for entry, data in self.values.items():
            state.load_value(entry, data)
        there = dict(state.mutable_tensors())
        with torch.no_grad():
            for name, content in self.buffers.items():
                local_tensor(there[name]).copy_(content)


@dataclass(frozen=True)
class _Call:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    between: _Between


class OpenTransaction:
    """One transaction; `step.transactions` opens it."""

    def __init__(
        self,
        context: RankContext,
        step: Step,
        attempt: Callable[[Step], None],
        vote: Callable[[Step, bool], None],
        rolled_back: Callable[[Step, BaseException], bool],
    ) -> None:
        """Take the methods of this rank's transactions."""
        self._progress, self._state, self._notices = context.progress, context.rank_state.state, context.notices
        self._attempt, self._vote, self._rolled_back = attempt, vote, rolled_back
        self.step = step
        self._calls: list[_Call] = []
        self._done = 0  # of them, in this attempt
        self._by_calls: set[str] = set()  # values that calls have changed
        self.inside = False  # a recorded call runs
        attempt(step)
        self._left = _Moment.of(self._state)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Record a call and run it, again and again until no loss interrupts it. Raises what it raises itself, and `UsageError`."""
        if self._progress.past_vote:
            raise UsageError(texts.CALL_AFTER_VOTE(name=name_of(function), running=self._progress.running))
        things = tree_leaves([getattr(function, "__self__", None), args, kwargs])
        gradients = {id(parameter.grad) for _, parameter in self._state.parameters() if parameter.grad is not None}
        if any(isinstance(thing, torch.Tensor) and (has_history(thing) or id(thing) in gradients) for thing in things):
            raise UsageError(texts.OF_ANOTHER_CALL(name=name_of(function)))
        if any(isinstance(thing, Iterator) for thing in (*args, *kwargs.values())):
            raise UsageError(texts.ITERATOR_IN_CALL(name=name_of(function)))
        self._calls.append(_Call(function, args, kwargs, self._between()))
        return self._run()

    def vote(self) -> None:
        """Vote, unless that is done. All recorded calls are run again if the vote fails."""
        if not self._progress.past_vote:
            self._run(self._between(), carried=self.step.kind == "step" or self.step.carried)

    def vote_before_update(self) -> None:
        """Vote before an optimizer's step, which ends the use of the gradients."""
        self._run(self._between())

    def _run(self, before_vote: _Between | None = None, carried: bool = False) -> Any:
        """Run the calls that this attempt still lacks, and vote if `before_vote` is given, until nothing interrupts it."""
        again = False
        while True:
            try:
                if again:
                    self._attempt(self.step)
                result = self._run_calls(again)
                if before_vote is not None:
                    if again:
                        before_vote.set_again(self._state)
                    self._vote(self.step, carried)
                self._left = _Moment.of(self._state)
                return result
            except errors_of_functions() as error:
                if not self._rolled_back(self.step, error):
                    del self._calls[self._done :]  # its owner may go on without it
                    self._left = _Moment.of(self._state)
                    raise
                again, self._done = True, 0

    def _run_calls(self, again: bool) -> Any:
        result = None
        for one in self._calls[self._done :]:
            if again:
                one.between.set_again(self._state)
            before = self._state.encoded_values(closely=False)
            self.inside = True
            try:
                result = one.function(*one.arguments, **one.keywords)
            finally:
                self.inside = False
            now = self._state.encoded_values(closely=False)
            self._by_calls |= {entry for entry in now if now[entry] != before.get(entry)}
            self._done += 1
        return result

    def _between(self) -> _Between:
        """Return what the owner's code has changed since the call before. Raises `UsageError` for parameters and gradients."""
        before, now = self._left, _Moment.of(self._state)
        if now.computed != before.computed:
            changed = {name for name in now.computed.keys() | before.computed.keys() if now.computed.get(name) != before.computed.get(name)}
            raise UsageError(texts.CHANGED_BETWEEN_CALLS(entry=min(changed), running=self._progress.running))
        values = {entry: data for entry, data in now.values.items() if before.values.get(entry) != data}
        if both := sorted(self._by_calls & values.keys()):
            self._notices.tell(texts.CHANGED_BY_BOTH(entry=both[0], running=self._progress.running))
        there = dict(self._state.mutable_tensors())
        moved = [name for name, count in now.buffers.items() if before.buffers.get(name) != count]
        streams = {name: data for name, data in now.streams.items() if before.streams.get(name) != data}
        return _Between(streams, values, {name: local_tensor(there[name]).detach().clone() for name in moved})


RUNS_CALLS = OpenTransaction._run_calls.__code__  # frames above it are the owner's
