"""Changes after a vote: which ranks have them when, and the message about a rank that was lost before it had handed them over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.message_texts import has
from tests.worker.steps import step_of

from understudy.messages import transactions
from understudy.worker.encoding.messages import BuddyCopy, CopyDigests, HandedAgain, unpack
from understudy.worker.errors import PeerLost
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.membership import Membership
from understudy.worker.progress import Uncommitted
from understudy.worker.state.buddy_store import BuddyStore, StoredBuddyCopy
from understudy.worker.state.rank_local import seal, unseal
from understudy.worker.step.boundary import StepBoundary
from understudy.worker.verification.post_vote_changes import EARLY, TOP, Look, PostVoteChanges


class Local:
    """The copies of a rank whose random stream moves after every vote."""

    def __init__(self) -> None:
        self.sealed: dict[int, BuddyCopy] = {}
        self.moved = False  # the argument of the last call

    def vote(self, transaction: int) -> None:
        self.sealed[transaction] = BuddyCopy(transaction, [], 0, {"torch": b""}, None, {}, {}, CopyDigests({}, {}))

    def make(self, transaction: int, *_: Any, after_vote: list[int], earlier: Any) -> BuddyCopy:
        copy = BuddyCopy(transaction, [], 0, {"torch": b"moved"}, None, {}, {}, CopyDigests({}, {}), behind=after_vote)
        self.sealed[transaction] = copy
        return copy

    def drawn(self, copy: BuddyCopy) -> list[str]:
        return ["the random stream 'torch'"]

    def changed(self, copy: BuddyCopy, values: Any, inside: bool, moved: bool) -> list[str]:
        self.moved = moved
        return []


class Rank:
    def __init__(self, transaction: int) -> None:
        self.notices: list[str] = []
        self.did: list[str] = []
        self.buddies = [1]
        self.store = BuddyStore()
        self.progress = SimpleNamespace(transaction=transaction, world_size=2, step=0, recovery=Uncommitted())
        self.local = Local()
        self.local.vote(transaction - 1)
        self.lost = False  # another rank is
        membership = self.membership = SimpleNamespace(
            channel=self,
            hand_over=self.give,
            record=b"set-up",
            store=self.store,
            is_failure=lambda error: True,
            newest=4,
            broken=None,
            unshared=True,
        )
        notices = SimpleNamespace(tell=self.notices.append)
        context = RankContext(self.progress, membership, SimpleNamespace(local=self.local), notices)  # type: ignore[arg-type]
        self.changes = PostVoteChanges(context)

    def hand_over(self, data: bytes) -> dict[int, bytes]:
        self.did.append("handed over")
        if self.lost:
            raise PeerLost("rank 1 is")
        return {1: data}

    def give(self, own: BuddyCopy) -> None:
        for rank, data in self.hand_over(seal(own)).items():
            self.store.put(rank, StoredBuddyCopy(own.transaction, data))

    def receipt(self) -> None:
        kept = self.store.get(1, self.progress.transaction - 1)
        self.did.append("kept" if kept is not None and unseal(kept.data).streams else "not kept")


@pytest.fixture
def rank() -> Rank:
    return Rank(transaction=40)


def agree(rank: Rank, *points: int) -> None:
    """In a vote: a rank has seen a change at these."""
    (field,) = rank.changes.vote_fields()
    rank.changes.voted({field.name: sum(1 << number for number in points)})


def test_a_rank_that_goes_on_knows_that_its_copy_is_kept(rank: Rank) -> None:
    agree(rank, 0)
    rank.changes.look("after train", Look.AFTER)
    assert rank.did == ["handed over", "kept"]


def test_a_change_in_a_transaction_that_a_loss_has_rolled_forward_is_found_there(rank: Rank) -> None:
    """If it counted as one of the next point, a newcomer would run what follows the transaction again, before it has any state."""
    rank.membership.channel, rank.membership.pending = None, "the recovery, in which this rank is about to take part"
    rank.changes.closed(step_of(function="train"))
    rank.changes.look(TOP, Look.AT_STREAMS)
    (reported,) = rank.notices
    assert has(reported, transactions.CHANGES_AFTER_VOTE, point="after train")
    assert rank.changes.after_vote() == [rank.changes.numbers["after train"]]
    assert rank.did == []


@pytest.mark.parametrize(
    ("copied", "now", "point", "moved"),
    [
        ([0, 5, 0], [0, 6, 0], "before train", False),
        ([0, 5, 0], [1, 0, 0], "before train", True),
        ([1, -1, 0], [1, 0, 0], "before train", True),
        ([1, -1, 0], [1, -1, 1], TOP, True),  # the loop begins
        ([0, -1, 4], [0, -1, 5], "before train", False),  # a loop by hand
        ([0, 5, 1], [1, -1, 0], "before evaluate", True),
    ],
)
def test_a_newcomer_itself_sets_what_the_script_sets_before_a_loop(
    rank: Rank, copied: list[int], now: list[int], point: str, moved: bool
) -> None:
    rank.local.sealed[39].place = copied
    rank.changes._place = lambda: now
    rank.changes.look(point, Look.AT_VALUES)
    assert rank.local.moved is moved


def test_what_a_loop_has_left_is_handed_over_once_right_before_the_next_transaction(rank: Rank) -> None:
    rank.changes.owed = True
    rank.changes.look("between the last transaction and the top of the next iteration", Look.AT_STREAMS)
    assert rank.did == []  # another rank may still be in the loop
    rank.changes.look("before evaluate", Look.AT_VALUES)
    rank.changes.look("before evaluate", Look.AT_VALUES)
    assert rank.did == ["handed over", "kept"]
    rank.changes.adopt({}, [], [], True)
    assert rank.changes.owed


def test_a_copy_that_a_loss_delays_is_handed_over_after_the_recovery(rank: Rank) -> None:
    agree(rank, 0)
    rank.lost = True
    rank.changes.look("after train", Look.AFTER)
    assert rank.did == ["handed over"]
    assert rank.membership.broken == rank.membership.newest  # so that no transaction begins before the recovery

    rank.lost = False
    handed: list[HandedAgain] = []

    def hand_over(data: bytes) -> dict[int, bytes]:
        handed.append(unpack(HandedAgain, data))
        return {1: data}

    rank.hand_over = hand_over  # type: ignore[method-assign]
    held = SimpleNamespace(copy_of=rank.local.sealed.get)
    after_vote = SimpleNamespace(complete=lambda: None)
    between = SimpleNamespace(_membership=rank.membership, _progress=rank.progress, _rank_state=held, _after_vote=after_vote)
    StepBoundary._hand_over_again(between)  # type: ignore[arg-type]
    (given,) = handed
    assert given.setup == b"set-up" and unseal(given.copy).streams == {"torch": b"moved"}
    assert rank.did[-1] == "kept" and not rank.membership.unshared


def test_a_generation_of_which_the_end_was_noticed_is_over(rank: Rank) -> None:
    control = SimpleNamespace(announcement=None)
    membership = Membership(control, SimpleNamespace(port=0), SimpleNamespace(generation=0), SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    assert not membership.announced()
    membership.broken = membership.newest
    assert membership.announced()


def test_a_change_is_reported_first_and_handed_over_once_all_have_agreed(rank: Rank) -> None:
    rank.changes.look("after train", Look.AFTER)
    assert rank.did == [] and has(rank.notices[0], transactions.CHANGES_AFTER_VOTE, point="after train")
    rank.changes.voted({field.name: field.value for field in rank.changes.vote_fields()})
    rank.local.vote(40)
    rank.progress.transaction = 41
    rank.changes.look("after train", Look.AFTER)
    assert rank.did == ["handed over", "kept"] and len(rank.notices) == 1


def test_after_the_first_votes_everything_is_handed_over() -> None:
    for transaction in range(1, EARLY + 2):
        rank = Rank(transaction)
        rank.changes.look("after train", Look.AFTER)
        assert bool(rank.did) == (transaction <= EARLY)


def test_what_a_lost_rank_had_not_handed_over_is_known(rank: Rank) -> None:
    agree(rank, 0, 1)
    at_vote = rank.local.sealed[39]
    assert rank.changes.after_vote() == []
    rank.changes.look("after train", Look.AFTER)
    after_one = rank.local.sealed[39]
    rank.changes.look("between the last transaction and train", Look.AT_VALUES)
    after_vote = rank.changes.after_vote()
    assert after_vote == [0, 1]
    assert rank.changes.missed(at_vote, after_vote) == ["after train", "between the last transaction and train"]
    assert rank.changes.missed(after_one, after_vote) == ["between the last transaction and train"]
    assert rank.changes.missed(rank.local.sealed[39], after_vote) == []
    rank.local.vote(40)
    rank.progress.transaction = 41
    rank.changes.committed(step_of())
    assert rank.changes.after_vote() == []


def test_a_point_at_which_nothing_is_known_to_change_is_not_missed() -> None:
    rank = Rank(transaction=1)
    rank.local.drawn = lambda copy: []  # type: ignore[method-assign]
    at_vote = rank.local.sealed[0]
    rank.changes.look("after train", Look.AFTER)
    assert rank.did and rank.changes.missed(at_vote, rank.changes.after_vote()) == []
