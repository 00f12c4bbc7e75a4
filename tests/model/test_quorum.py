"""Within small bounds the quorum keeps its promises in every order of events; without one of its rules it does not.

For two rules these bounds are too small: `test_quorum_raft.py` goes through Figure 8 (5.4.2) and a tail that is replaced (5.3).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.quorum import Bounds, Explorer, Violated
from understudy.orchestrator.quorum import raft
from understudy.orchestrator.quorum.raft import Raft, RequestVote


@pytest.mark.parametrize(
    "bounds", [Bounds(terms=1, entries=1, restarts=1), Bounds(terms=2), Bounds(terms=2, size=5, standing=(0,))], ids=str
)
def test_every_order_of_events(bounds: Bounds) -> None:
    assert Explorer(bounds).run() > 500


class TakesAnyLog(Raft):
    """Votes for a candidate whose log is behind its own (5.4.1)."""

    def _asked_for_vote(self, sender: int, ask: RequestVote, now: float) -> None:
        super()._asked_for_vote(sender, replace(ask, last=1 << 30, last_term=1 << 30), now)


class VotesTwice(Raft):
    """Forgets for whom it has voted (5.2)."""

    def _asked_for_vote(self, sender: int, ask: RequestVote, now: float) -> None:
        self.vote = -1
        super()._asked_for_vote(sender, ask, now)


class ForgetsItsTerm(Raft):
    """Has not written its hard state when it is started again (Figure 2)."""

    def __init__(self, number: int, size: int, now: float, draw: object, hard_state: tuple[int, int] = (0, -1), log: object = ()) -> None:
        super().__init__(number, size, now, lambda: 0.0, (0, -1), log)  # type: ignore[arg-type]


class ForgetsItsLog(Raft):
    """Has not written its log when it is started again (Figure 2)."""

    def __init__(self, number: int, size: int, now: float, draw: object, hard_state: tuple[int, int] = (0, -1), log: object = ()) -> None:
        super().__init__(number, size, now, lambda: 0.0, hard_state, ())


class CommitsAlone(Raft):
    """Takes half of the members for a majority."""

    def _commit(self) -> None:
        self.committed = len(self.log)


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        (TakesAnyLog, Bounds(terms=2)),
        (VotesTwice, Bounds(terms=1)),
        (ForgetsItsTerm, Bounds(terms=1, restarts=1)),
        (ForgetsItsLog, Bounds(terms=1, restarts=1)),
        (CommitsAlone, Bounds(terms=2)),
    ],
)
def test_no_rule_can_be_left_out(kind: type[Raft], bounds: Bounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft, "BATCH", -1)  # an entry in each message, so that there is something between having none and all
    with pytest.raises(Violated):
        Explorer(bounds, kind).run(most=20_000)
