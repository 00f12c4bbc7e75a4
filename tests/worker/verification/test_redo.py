"""A redo is compared with the earlier result of its rank: what counts as a difference, and to whom it is reported, when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.worker.steps import step_of
from torch import nn

from understudy.core.commands import Recover
from understudy.core.events import Event, RedoDiffers
from understudy.core.model import VotePhase
from understudy.worker.errors import GenerationAborted
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Reduce
from understudy.worker.progress import Progress
from understudy.worker.state.pre_vote_changes import PreVoteChanges
from understudy.worker.state.registry import State
from understudy.worker.verification.issued import IssuedCollectives
from understudy.worker.verification.redo import DIFFERS, RedoProof

GRADIENT = "net/parameter/0.weight/gradient"
NEXT = Recover("w0", 5, 8, "roll forward", "n0:7000", (), (), ())  # after transaction 7


class Counter:
    """A value of the user's own."""

    count = 3

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise AssertionError("nothing is restored here")


class Rank:
    """Rank 0 in generation 4, in transaction 7, with a frozen part that no optimizer steps."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        self.sent: list[Event] = []
        self.waited: list[bool] = []
        state = State()
        state.register("net", self.net)
        state.register("optimizer", torch.optim.SGD(self.net[0].parameters(), lr=0.1))
        self.pre_vote = PreVoteChanges(state)
        self.state = state
        held: Any = SimpleNamespace(state=state, pre_vote=self.pre_vote)
        control = SimpleNamespace(worker="w0", send=self.sent.append, wait_for=lambda over: self.waited.append(over()))
        membership: Any = SimpleNamespace(control=control, superseded=lambda generation: generation, quiesce=lambda: "quiesced")
        progress = Progress(0, 2, transaction=7, step=6, generation=4, phase=VotePhase.VOTED)
        context = RankContext(progress, membership, held, notices=SimpleNamespace())  # type: ignore[arg-type]
        self.proof = RedoProof(context, IssuedCollectives(context))
        self.computes()

    def computes(self, scale: float = 1.0) -> None:
        """An attempt."""
        self.net[0].weight.grad = torch.full((2, 2), scale)

    def redoes(self, scale: float = 1.0) -> int | None:
        """Another attempt, up to its vote. Its vote in the agreement."""
        self.computes(scale)
        self.proof.before_vote(step_of())
        return differs(self.proof)

    def event(self) -> RedoDiffers:
        (event,) = self.sent
        assert isinstance(event, RedoDiffers)
        return event


def differs(proof: RedoProof) -> int | None:
    """Its fields in the vote."""
    (field,) = proof.vote_fields()
    assert (field.name, field.reduce) == (DIFFERS, Reduce.GREATEST)
    return field.value


def test_without_an_attempt_before_nothing_is_looked_at() -> None:
    context = RankContext(*[None] * 4)  # type: ignore[arg-type]
    proof = RedoProof(context, IssuedCollectives(context))
    proof.before_vote(step_of())
    proof.committed(step_of())
    assert (differs(proof), proof.report().digests) == (0, 0)


def test_equal_bits_are_reported_once() -> None:
    rank = Rank()
    rank.proof.keep(0)
    assert rank.redoes() == 0
    rank.proof.committed(step_of())
    assert rank.proof.report().digests > 4 and rank.proof.report().digests == 0
    assert rank.redoes(2.0) == 0, "the next transaction is another one"


@pytest.mark.parametrize(("attempt", "digests"), [(0, True), (1, False)])
def test_a_redo_is_no_evidence_for_another(attempt: int, digests: bool) -> None:
    """Both may depend on what the first one has left."""
    rank = Rank()
    rank.proof.keep(attempt)
    assert rank.redoes() == 0 and bool(rank.proof.report().digests) == digests


def test_another_gradient_is_named_and_goes_with_the_vote() -> None:
    rank = Rank()
    rank.proof.keep(0)
    assert rank.redoes(2.0) == 1
    with pytest.raises(GenerationAborted, match="generation 4 ended"):
        rank.proof.disputed()
    assert rank.event() == RedoDiffers("w0", 4, 7, 6, f"{GRADIENT} is not the same") and rank.waited == [4]
    assert rank.proof.reported(NEXT) is NEXT, "it is known already"
    rank.proof.committed(step_of())
    assert rank.proof.report().digests == 0


def test_a_rank_whose_redo_is_the_same_waits_for_the_end_of_the_generation_and_reports_nothing() -> None:
    rank = Rank()
    with pytest.raises(GenerationAborted):
        rank.proof.disputed()
    assert rank.sent == [] and rank.waited == [4]


def test_other_streams_and_buffers_and_values_are_found() -> None:
    rank = Rank()
    rank.proof.keep(0)
    torch.rand(1)
    dict(rank.net.named_buffers())["1.running_mean"].add_(1)
    assert rank.redoes() == 1
    with pytest.raises(GenerationAborted):
        rank.proof.disputed()
    detail = rank.event().detail
    assert "net/buffer/1.running_mean is not the same" in detail and "the random stream 'torch' is not the same" in detail, detail


def test_values_are_reported_as_they_were_and_are() -> None:
    rank = Rank()
    counter = Counter()
    rank.proof._rank_state.state.register("counter", counter)
    rank.proof.keep(0)
    counter.count = 4
    assert rank.redoes() == 1
    with pytest.raises(GenerationAborted):
        rank.proof.disputed()
    assert rank.event().detail == "counter/value is {'count': 3} before the loss and {'count': 4} in the redo"


def test_all_redos_are_compared_with_the_first_attempt_that_came_to_its_vote() -> None:
    rank = Rank()
    rank.proof.keep(0)
    assert rank.redoes(2.0) == 1
    rank.proof.keep(0)  # a second loss: the redo that differs is in its vote, too
    assert rank.redoes(1.0) == 0
    assert rank.redoes(2.0) == 1


def test_a_difference_is_reported_before_a_vote_is_rolled_forward() -> None:
    rank = Rank()
    rank.proof.keep(0)
    rank.redoes(2.0)
    redo = Recover("w0", 5, 7, "redo", "n0:7000", (), (), ())
    assert rank.proof.reported(redo) is redo and rank.sent == [], "it is done again, and compared then"
    assert rank.proof.reported(NEXT) == "quiesced"  # type: ignore[comparison-overlap]
    assert rank.event().generation == 5 and rank.waited == [5]


def test_a_vote_that_is_rolled_forward_with_the_same_bits_is_no_news() -> None:
    rank = Rank()
    rank.proof.keep(0)
    rank.redoes()
    assert rank.proof.reported(NEXT) is NEXT and rank.sent == []


def test_knowledge_gained_between_the_attempts_is_no_difference() -> None:
    rank = Rank()
    rank.proof.keep(0)
    rank.pre_vote.add("train", {"net/parameter/0.weight"})
    assert rank.redoes() == 0


def test_a_gradient_is_missed_only_where_the_step_had_made_it() -> None:
    rank = Rank()
    rank.net[2].weight.grad = torch.ones(2, 2)
    made, rank.net[0].weight.grad = rank.net[0].weight.grad, None
    rank.state.kept_gradients.begin()
    rank.net[0].weight.grad = made
    rank.proof.keep(0)
    rank.net[2].weight.grad = None
    assert rank.redoes() == 0
    rank.net[0].weight.grad = None
    rank.proof.before_vote(step_of())
    assert differs(rank.proof) == 1
