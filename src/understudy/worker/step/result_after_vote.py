"""Adds the result of a transaction to this rank's own copy, which was made at the vote, before the function had returned.

A newcomer that enters a later transaction of the same iteration, such as an evaluation after a step, returns that result once more. So
when such a transaction begins, this rank sends its buddies the result. No rank waits for it: what a connection does not take at once is
not sent.
"""

from __future__ import annotations

from understudy.worker.data.results import Results
from understudy.worker.encoding.messages import BuddyCopy, LastResult, name_of_place, pack
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Step
from understudy.worker.transport.channel import RESULT

LARGEST = 64 << 10  # bytes that are sent: less than a connection's buffer


class ResultAfterVote(Participant):
    def __init__(self, context: RankContext, results: Results) -> None:
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._results = results

    def begin(self, step: Step) -> None:
        copy = self._copy()
        if copy is None or not (copy.place[1] < 0 or copy.place[:2] == step.place[:2]):
            return
        data, channel = self.complete(), self._membership.channel
        if data is not None and len(data) <= LARGEST and channel is not None:
            channel.tell(pack(LastResult(copy.transaction, data)), RESULT)

    def complete(self) -> bytes | None:
        """Add the result of the last transaction to its copy, and return it, encoded; None if there is none."""
        copy = self._copy()
        data = self._results.at(copy.place) if copy is not None else None
        if copy is not None and data is not None:
            copy.results[name_of_place(copy.place)] = data
        return data

    def _copy(self) -> BuddyCopy | None:
        return self._rank_state.copy_of(self._progress.transaction - 1)
