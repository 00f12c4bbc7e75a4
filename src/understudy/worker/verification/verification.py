"""The checks that a rank does together with the others, created in the order of their dependencies."""

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
    judge: Judge  # decides whose state is odd
    comparison: Comparison  # checks whether replicas still are
    post_vote: PostVoteChanges  # what changes after a vote
    count: CollectiveCount  # collectives where none are allowed
    order: ReductionOrder  # the order in which groups add up
    first: FirstTransaction  # compares what ranks issue after a recovery
    issued: IssuedCollectives  # inputs of collectives, in a redo and before
    redo: RedoProof  # checks whether a redo equals the interrupted step

    @staticmethod
    def of(context: RankContext, copy: StepCopy, place: Callable[[], ScriptPosition]) -> Verification:
        """Create the checks. `place`: returns that of the next transaction."""
        judge, post_vote = Judge(context), PostVoteChanges(context, place)
        order = ReductionOrder(context.membership.groups, context.progress.rank)
        first, issued = FirstTransaction(context), IssuedCollectives(context)
        context.membership.groups.before_abort(issued.freeze)
        comparison = Comparison(context, copy, post_vote, judge, issued)
        return Verification(judge, comparison, post_vote, CollectiveCount(context), order, first, issued, RedoProof(context, issued))
