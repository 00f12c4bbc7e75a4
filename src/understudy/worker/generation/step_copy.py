"""The copy from which a redo starts, made at the begin of a transaction: all that it may change, including what is known to change before
its vote.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Reduce, Step, VoteField, VoteResult
from understudy.worker.state.pre_vote_changes import Before
from understudy.worker.state.registration import refuse_sparse_gradients
from understudy.worker.state.registry import Snapshot

SHARED = "shared"  # a digest of what all ranks have in common, as far as known
EARLY = 3  # transactions: a step of each kind, mostly
_MARK, _FOUND = "changed before votes", "changed before this vote"


class StepCopy(Participant):
    def __init__(self, context: RankContext) -> None:
        self._progress, self._rank_state, self._notices = context.progress, context.rank_state, context.notices
        self._snapshot: Snapshot | None = None
        self._before: Before | None = None
        self.found = False  # by any rank, in the last vote: something that was not known to change before the vote

    @property
    def snapshot(self) -> Snapshot:
        assert self._snapshot is not None, "a transaction has begun"
        return self._snapshot

    @property
    def before(self) -> Before:
        assert self._before is not None, "a transaction has begun"
        return self._before

    def begin(self, step: Step) -> None:
        self._snapshot = self._rank_state.state.snapshot()
        self._before = self._rank_state.pre_vote.begin(step.function)
        step.values, step.closely = self._snapshot.values, self._before.full

    def attempt(self, step: Step) -> None:
        self._rank_state.frameworks.begin()

    def before_vote(self, step: Step) -> None:
        if news := self._rank_state.pre_vote.look(self.before):
            self._notices.tell(news)
        self._rank_state.frameworks.settle()
        self._rank_state.state.kept_gradients.settle()
        if self._progress.transaction < EARLY:
            refuse_sparse_gradients(self._rank_state.state)

    def vote_fields(self) -> Sequence[VoteField]:
        pre_vote = self._rank_state.pre_vote
        return (
            VoteField(SHARED, Reduce.EQUAL, self._rank_state.local.shared),
            VoteField(_MARK, Reduce.EQUAL, pre_vote.mark),
            VoteField(_FOUND, Reduce.GREATEST, int(pre_vote.found_now)),
        )

    def voted(self, result: VoteResult) -> None:
        self._rank_state.pre_vote.unequal = result[_MARK] is None
        self.found = bool(result[_FOUND])

    def passed(self, step: Step) -> None:
        self._rank_state.pre_vote.passed(self.before)

    def rollback(self, step: Step) -> None:
        """Roll back: drop what frameworks have left under way before tensors are restored, and restore what they note after that."""
        self._rank_state.frameworks.reset()
        self._rank_state.state.restore(self.snapshot)
        self._rank_state.pre_vote.restore(self.before)
        self._rank_state.frameworks.restore()

    def committed(self, step: Step) -> None:
        if step.kind == "step":
            self._rank_state.state.kept_gradients.learn(step.carried)
