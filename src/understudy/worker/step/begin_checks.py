"""Checks at the begin of each transaction for what a redo or a newcomer could not reproduce. More checks in the first transactions of a
function.
"""

from __future__ import annotations

import os

from understudy.common.names import STRICT_VARIABLE
from understudy.messages import transactions as texts
from understudy.worker.data.loops import Loops
from understudy.worker.data.manual_iterators import by_hand, carried
from understudy.worker.errors import UsageError
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Step


class BeginChecks(Participant):
    def __init__(self, context: RankContext, loops: Loops) -> None:
        self._state, self._notices, self._loops = context.rank_state.state, context.notices, loops
        self._strict = os.environ.get(STRICT_VARIABLE) == "1"  # what a newcomer would not have is refused, and not only reported

    def begin(self, step: Step) -> None:
        news = self._state.unregistered.news()
        if news and self._strict:
            raise UsageError(news[0])
        for text in (*self._state.attributes.news(), *news):
            self._notices.tell(text)
        if step.closely and (name := by_hand(self._state.loaders)):
            raise UsageError(texts.DRAWN_BY_HAND(name=name))
        if step.closely and self._loops.inside and carried():
            self._notices.tell(texts.OWN_ITERATOR())

    def committed(self, step: Step) -> None:
        self._state.unregistered.committed()
