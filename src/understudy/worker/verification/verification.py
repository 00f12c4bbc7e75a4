"""What a rank checks together with the others, made in the order in which one needs the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from understudy.worker.encoding.messages import ScriptPosition
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.step_copy import StepCopy
from understudy.worker.verification.collective_count import CollectiveCount
from understudy.worker.verification.comparison import Comparison
from understudy.worker.verification.first_transaction import FirstTransaction
from understudy.worker.verification.issued import IssuedCollectives
from understudy.worker.verification.post_vote_changes import PostVoteChanges
from understudy.worker.verification.redo import RedoProof
from understudy.worker.verification.reduction_order import ReductionOrder
from understudy.worker.verification.verdicts import Judge


@dataclass(frozen=True)
class Verification:
    judge: Judge  # whose state is odd
    comparison: Comparison  # whether replicas still are
    post_vote: PostVoteChanges  # what changes after a vote
    count: CollectiveCount  # collectives where none may be
    order: ReductionOrder  # in which order groups add
    first: FirstTransaction  # what ranks issue after a recovery
    issued: IssuedCollectives  # what goes into collectives, in a redo and before
    redo: RedoProof  # whether a redo is what it redoes

    @staticmethod
    def of(context: RankContext, copy: StepCopy, place: Callable[[], ScriptPosition]) -> Verification:
        """`place`: of the next transaction."""
        judge, post_vote = Judge(context), PostVoteChanges(context, place)
        order = ReductionOrder(context.membership.groups, context.progress.rank)
        first, issued = FirstTransaction(context), IssuedCollectives(context)
        context.membership.groups.before_abort(issued.freeze)
        comparison = Comparison(context, copy, post_vote, judge, issued)
        return Verification(judge, comparison, post_vote, CollectiveCount(context), order, first, issued, RedoProof(context, issued))
