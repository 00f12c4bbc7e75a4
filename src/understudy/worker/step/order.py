"""The participants of a transaction, in the order in which each of their methods is called, with the reason for each place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from understudy.worker.collectives.device_times import DeviceTimes
from understudy.worker.data.loops import Loops
from understudy.worker.data.results import Results
from understudy.worker.drill.drill import WatchSlot
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.step_copy import StepCopy
from understudy.worker.guards.arguments import ArgumentsGuard
from understudy.worker.guards.async_saves import AsyncSaves
from understudy.worker.guards.async_work import Works
from understudy.worker.participant import Participant, Step, VoteField, VoteResult
from understudy.worker.step.begin_checks import BeginChecks
from understudy.worker.step.boundary import StepBoundary
from understudy.worker.step.commit_report import CommitReport
from understudy.worker.step.result_after_vote import ResultAfterVote
from understudy.worker.verification.verification import Verification


@dataclass(frozen=True)
class Parts:
    """Participants that other parts use, too."""

    boundary: StepBoundary
    times: DeviceTimes
    copy: StepCopy
    watch: WatchSlot
    loops: Loops
    results: Results
    after_vote: ResultAfterVote


def participants(context: RankContext, verification: Verification, parts: Parts) -> tuple[Participant, ...]:
    membership, tell = context.membership, context.notices.tell

    def is_lost() -> bool:
        return membership.aborted() or membership.groups.is_broken()

    return (
        parts.boundary,  # decides whether the rank is to pause
        parts.times,  # ends its measurement and waits for the device: those that follow in a vote may read the results of collectives
        verification.first,  # releases collectives that wait to be compared, so that waiting for them cannot hang
        Works(tell),  # waits for collectives that the script has left under way: after this all of them are done
        AsyncSaves(is_lost, tell),  # waits for checkpoints that the script has left under way: the same
        verification.issued,  # all of them are known: none may follow
        ArgumentsGuard(tell),  # checks before a rollback restores registered objects, which may be among the arguments
        parts.copy,  # of the state: all that follow depend on it
        BeginChecks(context, parts.loops),  # refuses before anything is handed over or drilled
        verification.post_vote,  # hands over what has changed since the last vote, which a drill reports to its spare
        parts.after_vote,  # likewise: the result of the last transaction
        parts.watch,  # a drill: compares what the step has computed, when nothing is under way
        verification.redo,  # likewise, and depends on what was issued
        verification.comparison,  # depends on what the copy has found in this vote
        verification.count,  # no collective may follow
        CommitReport(context, verification.redo),  # reports the first commit of a generation, when the redo has its result
        parts.results,  # stores by the place that this transaction had
        parts.loops,  # moves to the next place
    )


class Order:
    """Calls all participants that implement a method, in order. The methods are those of `Participant`."""

    def __init__(self, participants: Iterable[Participant]) -> None:
        every = tuple(participants)

        def who(name: str) -> tuple[Callable[..., Any], ...]:
            return tuple(getattr(one, name) for one in every if getattr(type(one), name) is not getattr(Participant, name))

        self._begin, self._attempt, self._before_vote = who("begin"), who("attempt"), who("before_vote")
        self._vote_fields, self._voted, self._passed = who("vote_fields"), who("voted"), who("passed")
        self._failed, self._rollback, self._again = who("failed"), who("rollback"), who("again")
        self._returned, self._committed, self._closed = who("returned"), who("committed"), who("closed")

    def begin(self, step: Step) -> None:
        _each(self._begin, step)

    def attempt(self, step: Step) -> None:
        _each(self._attempt, step)

    def before_vote(self, step: Step) -> None:
        _each(self._before_vote, step)

    def vote_fields(self) -> list[VoteField]:
        return [field for fields in self._vote_fields for field in fields()]

    def voted(self, result: VoteResult) -> None:
        _each(self._voted, result)

    def passed(self, step: Step) -> None:
        _each(self._passed, step)

    def failed(self, step: Step, error: BaseException) -> None:
        for failed in self._failed:
            failed(step, error)

    def rollback(self, step: Step) -> None:
        _each(self._rollback, step)

    def again(self, step: Step) -> None:
        _each(self._again, step)

    def returned(self, step: Step) -> None:
        _each(self._returned, step)

    def committed(self, step: Step) -> None:
        _each(self._committed, step)

    def closed(self, step: Step) -> None:
        _each(self._closed, step)


def _each(calls: tuple[Callable[..., Any], ...], given: Any) -> None:
    for call in calls:
        call(given)
