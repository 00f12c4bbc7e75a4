"""The transactions of a rank, and what it does when a generation ends.

A transaction on a healthy job is: begin (a copy of what may change), the user's function, the vote (buddy copies in place, then
agreement), the rest of the function, committed. Nothing in it talks to the control plane. `step.order` has what is done at each of
these, and in which order.

When the control thread has announced a new generation, or a collective fails, the worker *quiesces*: wherever it is, it reports how far
it is and waits for the decision.

    in the function, or in a vote that must be redone   the exception unwinds the function; state as of begin; redo
    in a vote that is rolled forward                     the vote returns; the function goes on and commits
    anywhere else                                        noticed at the next begin

In all three cases it attaches to the new generation at one place, the begin of the next transaction (`recovery.attachment`), where it
gives its state to newcomers. Until then the old groups stay broken, and refuse everything.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import LBFGS, Optimizer

from understudy.common.page_view import Activity
from understudy.core.events import SectionFailed
from understudy.core.model import VotePhase
from understudy.messages import transactions as texts
from understudy.worker import hooks
from understudy.worker.callables import name_of
from understudy.worker.data.loops import Loops
from understudy.worker.drill.drill import WatchSlot
from understudy.worker.errors import GenerationAborted, UnderstudyError, UsageError, errors_of_functions
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Step
from understudy.worker.process.where import traceback_of
from understudy.worker.step.boundary import StepBoundary
from understudy.worker.step.open_transaction import OpenTransaction
from understudy.worker.step.order import Order
from understudy.worker.step.votes import Votes

UNHEARD = 30.0  # seconds until a section that has failed is reported in another way
COMPILES = 2  # first steps of a function, in which it may be compiled, or allocate


class Transactions:
    def __init__(self, context: RankContext, order: Order, votes: Votes, boundary: StepBoundary, loops: Loops, watch: WatchSlot) -> None:
        self._context, self._progress, self._membership = context, context.progress, context.membership
        self._order, self._votes, self._boundary, self._loops, self._watch = order, votes, boundary, loops, watch
        self._step = Step("", "", (), [])  # the running one, or the last
        self._open: OpenTransaction | None = None  # whose owner calls what follows the begin
        self._committed: Counter[str] = Counter()  # steps of each function, by this worker
        self._in_function = False  # the script's own code runs, up to the vote

    def run(self, function: Callable[..., Any], kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], reports: bool = False) -> Any:
        """Run one transaction until it is committed, and return the function's result. `reports`: an error of the function itself is
        reported, and the transaction skipped; its result is None then.
        """
        step = self.begin(kind, name_of(function), [args, kwargs], reports)
        while True:
            try:
                self.attempt(step)
                step.result = None if step.skipped else function(*args, **kwargs)
                self.end(step)
                break
            except errors_of_functions() as error:
                if not self.rolled_back(step, error):
                    raise
        self.commit(step)
        return step.result

    def open(self, kind: str, name: str) -> OpenTransaction:
        """Begin a transaction that its owner continues, and ends by `close`."""
        step = self.begin(kind, name, ())
        self._open = OpenTransaction(self._context, step, self.attempt, self.vote, self.rolled_back)
        return self._open

    def close(self, transaction: OpenTransaction, result: Any) -> None:
        """Vote, unless that is done, and commit."""
        transaction.vote()
        transaction.step.result, self._open = result, None
        self.commit(transaction.step)

    def begin(self, kind: str, function: str, arguments: Any, reports: bool = False) -> Step:
        """Begin a transaction. What follows is `attempt`, the script's code, and `end`, until no failure is `rolled_back`; then `commit`.

        Raises `UsageError` inside of another transaction.
        """
        if self._progress.kind:
            raise UsageError(texts.NESTED(name=function, running=self._progress.running))
        if kind == "section":
            self._context.rank_state.state.kept_gradients.keep()  # before any rank joins a new generation
        self._boundary.join()
        alone, carried = self._watch.current.alone, self._step.carried
        step = Step(kind, function, arguments, self._loops.next_place(), alone, reports=reports and not alone, carried=carried)
        self._step = step
        self._order.begin(step)
        return step

    def attempt(self, step: Step) -> None:
        """Begin an attempt: the script's code is about to run."""
        progress = self._progress
        progress.kind, progress.function = step.kind, step.function
        progress.past_vote = progress.must_redo = self._in_function = False
        step.skipped = step.reports and progress.sections.agreed == progress.transaction
        progress.phase = VotePhase.RUNNING
        alone = step.kind == "section" or self._committed[step.function] < COMPILES
        self._membership.control.page.enter(Activity.RUNNING, progress.transaction, alone=alone)
        self._order.attempt(step)
        hooks.fire("begin")
        self._in_function = True

    def end(self, step: Step) -> None:
        """End an attempt, and vote unless an optimizer's step has done so. Raises `GenerationAborted` if it has to be redone."""
        if not self._progress.past_vote:
            self.vote(step, step.kind == "step" or step.carried)

    def vote(self, step: Step, carried: bool) -> None:
        """Vote. `carried`: for gradients that a later transaction goes on with. Raises `GenerationAborted` if it has to be redone."""
        self._in_function = False
        if self._progress.must_redo:
            raise GenerationAborted("the failure of this attempt was swallowed inside it")
        step.carried = carried
        self._votes.run(step)

    def rolled_back(self, step: Step, error: BaseException) -> bool:
        """Roll back after a failure, for the next attempt. Returns False if `error` is the script's own."""
        if not self._is_redone(step, error):
            return False
        self._roll_back(step)
        return True

    def commit(self, step: Step) -> None:
        self._order.returned(step)
        progress = self._progress
        progress.kind = ""
        progress.transaction += 1
        progress.step += step.kind == "step"
        progress.phase = VotePhase.IDLE
        self._order.committed(step)
        self._order.closed(step)
        self._committed[step.function] += 1
        hooks.fire("committed", kind=step.kind, function=step.function, result=step.result)

    def _is_redone(self, step: Step, error: BaseException) -> bool:
        """Return whether the attempt is redone, after waiting for the decision; else `error` is the user's. Raises the cause of the error,
        if that is known.
        """
        self._membership.leave_if_device_failed(error)
        self._order.failed(step, error)
        if self._progress.past_vote:
            if self._membership.aborted() or self._membership.groups.is_broken():
                raise UsageError(texts.FAILED_AFTER_VOTE(rank=self._progress.rank, running=self._progress.running)) from error
            return False
        if self._progress.must_redo:
            return True  # even if a library has replaced the exception that ended the attempt
        if not self._membership.is_failure(error):
            if not (step.reports and self._in_function) or isinstance(error, UnderstudyError):
                return False
            self._report(step, error)
        self._membership.quiesce()
        return True

    def _report(self, step: Step, error: BaseException) -> None:
        """Report that a section has failed here, and is skipped. Other ranks may wait for this one in a collective, so the generation must
        end.
        """
        progress, membership, control = self._progress, self._membership, self._membership.control
        generation = membership.newest
        progress.sections.failed = progress.transaction
        summary = "".join(traceback.format_exception_only(error)).strip()
        print(f"{traceback_of(error)}{texts.SECTION_FAILED(rank=progress.rank, name=step.function)}", file=sys.stderr, flush=True)
        detail = f"{progress.running}: {summary}"[:4000]
        control.send(SectionFailed(control.worker, generation, detail))
        if not control.wait_for(lambda: membership.superseded(generation), UNHEARD):
            membership.report_broken(generation, detail)  # for an orchestrator of an earlier version

    def _roll_back(self, step: Step) -> None:
        """Restore everything as of the begin, and join the newest generation."""
        self._progress.kind = ""
        self._order.rollback(step)
        if not step.alone:
            self._boundary.join(redo=True)
        self._order.again(step)
        self._progress.recovery.attached = time.time()
        step.attempt += 1

    def before_optimizer_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Vote before an optimizer steps: a hook of every optimizer. Return its new arguments, if they are others. Raises `UsageError`, and
        what a vote or a closure raises.
        """
        progress, others = self._progress, None
        if progress.kind == "step":
            if not any(known is optimizer for known in self._context.rank_state.state.optimizers.values()):
                raise UsageError(texts.OPTIMIZER_NOT_REGISTERED(optimizer=type(optimizer).__qualname__))
            if not progress.past_vote:
                owner = self._open if self._open is not None and not self._open.inside else None
                others = with_closure_run(optimizer, args, kwargs, owner.call if owner is not None else _called)
                owner.vote_before_update() if owner is not None else self.vote(self._step, carried=False)
        elif progress.kind:
            raise UsageError(texts.OPTIMIZER_IN_SECTION(running=progress.running))
        elif progress.transaction >= 0:
            raise UsageError(texts.OPTIMIZER_OUTSIDE())
        hooks.fire("optimizer")
        return others


def _called(closure: Callable[[], Any]) -> Any:
    return closure()


def with_closure_run(
    optimizer: Optimizer, args: Any, kwargs: Any, run: Callable[[Callable[[], Any]], Any] = _called
) -> tuple[Any, Any] | None:
    """Run the closure of `optimizer.step(closure)` by `run`, now, before the vote, and return arguments with one that returns its result.

    None if there is no closure, and for LBFGS and optimizers that are not torch's own, which may run it several times, or after they have
    changed parameters, as SAM does. `args` begins with the optimizer.
    """
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    runs_it_first = type(optimizer).step.__module__.startswith("torch.optim.") and not isinstance(optimizer, LBFGS)
    if not callable(closure) or not runs_it_first:
        return None
    with torch.enable_grad():
        result = run(closure)
    rest = {name: value for name, value in kwargs.items() if name != "closure"}
    return (args[0], lambda: result, *args[2:]), rest
