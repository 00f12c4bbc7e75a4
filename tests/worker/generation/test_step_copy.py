"""What ranks report to each other, in votes, about changes of a transaction before its vote."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from tests.worker.steps import step_of
from torch import nn

from understudy.worker.generation.context import RankContext
from understudy.worker.generation.step_copy import SHARED, StepCopy
from understudy.worker.progress import Progress
from understudy.worker.state.pre_vote_changes import PreVoteChanges
from understudy.worker.state.registry import State
from understudy.worker.step.votes import ballot, result


class Rank:
    def __init__(self, shared: int = 9) -> None:
        torch.manual_seed(1)
        self.layer = nn.Linear(2, 2)
        self.reported: list[str] = []
        state = State()
        state.register("net", self.layer)
        state.register("optimizer", torch.optim.SGD(self.layer.parameters(), lr=0.1))
        frameworks = SimpleNamespace(begin=lambda: None, settle=lambda: None)
        self.pre_vote = PreVoteChanges(state)
        rank_state: Any = SimpleNamespace(state=state, pre_vote=self.pre_vote, frameworks=frameworks, local=SimpleNamespace(shared=shared))
        nothing: Any = None
        self.copy = StepCopy(RankContext(Progress(0, 2, transaction=7), nothing, rank_state, SimpleNamespace(tell=self.reported.append)))  # type: ignore[arg-type]

    def step(self, changes: bool) -> None:
        """Up to its vote."""
        step = step_of()
        self.copy.begin(step)
        assert step.closely and step.values is self.copy.snapshot.values
        if changes:
            with torch.no_grad():
                self.layer.weight.add_(1)
        self.copy.before_vote(step)


def vote(*ranks: Rank) -> int | None:
    """Gives what was agreed on what all have alike."""
    fields = [rank.copy.vote_fields() for rank in ranks]
    greatest = list(map(max, *(ballot(own)[0] for own in fields)))
    for rank, own in zip(ranks, fields, strict=True):
        rank.copy.voted(result(own, greatest, ()))
    return result(fields[0], greatest, ())[SHARED]


def test_ranks_agree_on_what_any_of_them_has_found() -> None:
    here, there = Rank(), Rank()
    here.step(changes=True)
    there.step(changes=False)
    assert [len(here.reported), len(there.reported)] == [1, 0]
    vote(here, there)
    assert here.copy.found and there.copy.found
    assert here.pre_vote.unequal and there.pre_vote.unequal
    here.pre_vote.adopt(there.pre_vote.found_changes())
    there.pre_vote.adopt(here.pre_vote.found_changes())
    assert there.pre_vote.entries == here.pre_vote.entries == {"net/parameter/weight"}
    here.step(changes=True)
    there.step(changes=True)
    vote(here, there)
    assert [there.pre_vote.unequal, there.copy.found] == [False, False]


def test_what_all_had_alike_and_is_not_any_more_shows_in_the_vote() -> None:
    assert vote(Rank(shared=9), Rank(shared=9)) == 9
    assert vote(Rank(shared=9), Rank(shared=8)) is None


def test_a_redo_starts_from_the_begin() -> None:
    rank = Rank()
    state = rank.copy._rank_state
    state.frameworks.reset = state.frameworks.restore = lambda: None  # type: ignore[method-assign]
    before = rank.layer.weight.clone()
    rank.step(changes=True)
    rank.copy.rollback(step_of())
    assert torch.equal(rank.layer.weight, before)
