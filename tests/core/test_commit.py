"""The one decision, against what it promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.commit import InvariantBroken, decide
from understudy.core.model import BuddyCopyRef, Position, VotePhase

RUNNING, VOTED, IDLE = VotePhase.RUNNING, VotePhase.VOTED, VotePhase.IDLE


def test_all_inside_the_transaction_redo_it() -> None:
    decision = decide({0: Position(7, RUNNING), 2: Position(7, VOTED)}, {0: [BuddyCopyRef(1, 6)], 2: []}, [1])
    assert (decision.start, decision.decision, decision.absent, decision.holders) == (7, "redo", (1,), (0,))


def test_one_beyond_means_that_the_vote_passed() -> None:
    decision = decide({0: Position(8, IDLE), 2: Position(7, VOTED)}, {0: [BuddyCopyRef(1, 6)], 2: [BuddyCopyRef(1, 7)]}, [1])
    assert (decision.start, decision.decision, decision.holders) == (8, "roll forward", (2,))


def test_a_lost_rank_that_may_have_passed_the_vote() -> None:
    positions = {0: Position(7, VOTED), 2: Position(7, VOTED)}
    assert decide(positions, {0: [BuddyCopyRef(1, 7)]}, [1]).start == 8
    assert decide(positions, {0: [BuddyCopyRef(1, 6)]}, [1]).start == 7
    assert decide(positions, {0: [BuddyCopyRef(1, 7)], 2: [BuddyCopyRef(3, 6)]}, [1, 3]).start == 7
    assert decide(positions, {}, []).start == 8  # no rank was lost: all have voted


def test_setup() -> None:
    assert decide({0: Position(-1, RUNNING)}, {}, [1]).from_scratch
    assert decide({0: Position(-1, VOTED)}, {0: [BuddyCopyRef(1, -1)]}, [1]).start == 0


def test_state_that_is_nowhere() -> None:
    decision = decide({0: Position(7, RUNNING)}, {0: [BuddyCopyRef(1, 6)]}, [1, 2])
    assert decision.holders == (0, -1) and decision.uncovered == (2,)


def test_positions_that_cannot_be() -> None:
    with pytest.raises(InvariantBroken):
        decide({0: Position(7, VOTED), 1: Position(9, RUNNING)}, {}, [2])
    with pytest.raises(InvariantBroken):
        decide({0: Position(7, RUNNING), 1: Position(8, RUNNING)}, {}, [2])
    with pytest.raises(ValueError, match="no survivors"):
        decide({}, {}, [0])


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[int, Position], dict[int, list[BuddyCopyRef]], set[int], int, bool]:
    """A world that the protocol allows: where every rank really was, and what each buddy held, when some were lost.

    A rank has voted only after its buddy has its copy; the vote passes only when all have voted; each may learn of it
    at another time. Copies of the last two transactions are kept.
    """
    world = draw(st.integers(2, 6))
    at = draw(st.integers(0, 3))
    all_voted = draw(st.booleans())
    places = {}
    for rank in range(world):
        if all_voted:
            choices = [Position(at, VOTED), Position(at + 1, IDLE), Position(at + 1, RUNNING)]
        else:
            choices = [Position(at, IDLE), Position(at, RUNNING), Position(at, VOTED)]
        places[rank] = draw(st.sampled_from(choices))
    if not all_voted and all(place.stand is VOTED for place in places.values()):
        places[0] = Position(at, RUNNING)
    lost = draw(st.sets(st.integers(0, world - 1), max_size=world - 1))
    survivors = {rank: place for rank, place in places.items() if rank not in lost}
    copies: dict[int, list[BuddyCopyRef]] = {rank: [] for rank in survivors}
    for rank, place in places.items():
        buddy = (rank + 1) % world
        voted = place.transaction > at or place.stand is VOTED
        newest = at if voted or (draw(st.booleans()) and place.stand is RUNNING) else at - 1
        if not voted and not all_voted:
            newest = at - 1
        if buddy in survivors:
            copies[buddy] += [BuddyCopyRef(rank, newest), BuddyCopyRef(rank, newest - 1)]
    passed = any(place.transaction > at for place in places.values())
    return survivors, copies, lost, at, passed


@given(histories())
def test_never_redo_what_a_rank_passed_and_never_pass_what_a_rank_missed(
    world: tuple[dict[int, Position], dict[int, list[BuddyCopyRef]], set[int], int, bool],
) -> None:
    survivors, copies, lost, at, passed = world
    decision = decide(survivors, copies, lost)
    if any(place.transaction > at for place in survivors.values()):
        assert decision.start == at + 1  # a survivor's parameters have changed: there is no way back
    if decision.start == at + 1:  # then every survivor has complete gradients
        assert all(place.transaction > at or place.stand is VOTED for place in survivors.values())
    if passed and all((rank + 1) % (len(survivors) + len(lost)) in survivors for rank in lost):
        assert decision.start == at + 1  # a lost rank may have acted on the vote, and its copy shows it
    for rank, holder in zip(decision.absent, decision.holders, strict=True):
        assert holder == -1 or BuddyCopyRef(rank, decision.start - 1) in copies[holder]


positions = st.builds(Position, st.integers(-1, 3), st.sampled_from(VotePhase))
anything = st.dictionaries(st.integers(0, 5), positions, min_size=1)
any_copies = st.dictionaries(st.integers(0, 5), st.lists(st.builds(BuddyCopyRef, st.integers(0, 5), st.integers(-2, 4))))


@given(anything, any_copies, st.sets(st.integers(0, 5)))
def test_any_input_gives_a_decision_or_a_reason(
    places: dict[int, Position], copies: dict[int, list[BuddyCopyRef]], absent: set[int]
) -> None:
    try:
        decision = decide(places, copies, absent)
    except InvariantBroken:
        return
    lowest = min(place.transaction for place in places.values())
    assert decision.start in (lowest, lowest + 1)
    assert decision.absent == tuple(sorted(absent)) and len(decision.holders) == len(absent)
