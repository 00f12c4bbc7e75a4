"""Counts the collectives that a rank has issued, to find those that are in no transaction, or after a vote."""

from __future__ import annotations

from understudy.messages import transactions
from understudy.worker.errors import UsageError
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Step
from understudy.worker.transport.groups import Groups


class CollectiveCount(Participant):
    def __init__(self, context: RankContext) -> None:
        self._progress, self._membership, self._notices = context.progress, context.membership, context.notices
        self._at_vote = 0
        self._at_end = 0  # of the last transaction

    @property
    def _groups(self) -> Groups:
        return self._membership.groups

    def end(self) -> None:
        """Note the end of the set-up, of an attachment, or of a transaction."""
        self._at_end = self._groups.collectives()

    def before_vote(self, step: Step) -> None:
        self._at_vote = self._groups.collectives()

    def returned(self, step: Step) -> None:
        """Raise `UsageError` if the function has issued some after its vote."""
        issued = self._groups.collectives()
        if issued > self._at_vote:
            count = issued - self._at_vote
            collectives = f"{count} collective{'s' * (count != 1)}"
            raise UsageError(transactions.COLLECTIVES_AFTER_VOTE(rank=self._progress.rank, function=step.function, collectives=collectives))
        self._at_end = issued  # the function is over

    def notice_outside(self, where: str = "") -> None:
        """Report, at a begin or at the end of the script, the collectives since the last transaction."""
        issued, number = self._groups.collectives(), self._progress.transaction
        count = issued - self._at_end
        if count > 0 and self._at_end >= 0 and self._membership.pending is None:
            where = where or f"between transaction {number - 1} and {number}"
            self._notices.tell(transactions.COLLECTIVES_OUTSIDE(count=count, where=where))
        self.end()
