"""Which rails lead to a peer, decided from probes and links: without sockets, with a clock of the test."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.network.paths import AnswersAgain, Cause, Change, Limits, Paths, Restored, Stalled, StaysDown, Withdrawn

LIMITS = Limits(patience=0.25, losses=3, answers=5, hold=2.0, hold_most=16.0, forget=100.0, report=30.0, stall=1.0)
INTERVAL = 0.1
RAILS = ("r1", "r2", "r3")


class Clock:
    """A peer that answers on some rails only, at once."""

    def __init__(self, rails: Iterable[str] = RAILS[:2], withdrawn: Iterable[str] = ()) -> None:
        self.now = 1000.0
        self.paths = Paths("node1", tuple(rails), LIMITS, self.now, list(withdrawn))
        self.changes: list[Change] = []

    def rounds(self, count: int, *answering: str, stopped: bool = False) -> list[Change]:
        """Let rounds pass. `stopped`: this process decides only after all of them. Return the changes."""
        found: list[Change] = []
        for _ in range(count):
            number, rails = self.paths.probe(self.now)
            for rail in answering:
                if rail in rails:
                    self.paths.answered(rail, number, self.now + 0.001)
            self.now += INTERVAL
            found += [] if stopped else self.paths.judge(self.now)
        found += self.paths.judge(self.now)
        self.changes += found
        return found

    def hops(self) -> tuple[str, ...]:
        return self.paths.hops

    def link(self, rail: str, works: bool) -> list[Change]:
        self.paths.link(rail, works, self.now)
        found = self.paths.judge(self.now)
        self.changes += found
        return found

    def until_restored(self, rail: str, *answering: str) -> float:
        began = self.now
        for _ in range(10000):
            if any(isinstance(change, Restored) and change.rail == rail for change in self.rounds(1, *answering)):
                return self.now - began
        raise AssertionError(f"{rail} is never restored")


def test_a_rail_that_does_not_answer_is_withdrawn_within_the_limits() -> None:
    clock = Clock()
    clock.rounds(5, "r1", "r2")
    silent = clock.now
    (change,) = clock.rounds(6, "r1")
    assert change == Withdrawn("node1", "r2", Cause.PROBES, silent, 2.0)
    assert clock.hops() == ("r1",)
    assert clock.paths.paths["r2"].since - silent <= LIMITS.losses * INTERVAL + LIMITS.patience


@pytest.mark.parametrize("lost", range(1, LIMITS.losses))
def test_single_losses_withdraw_nothing(lost: int) -> None:
    clock = Clock()
    for _ in range(20):
        clock.rounds(lost, "r1")
        clock.rounds(1, "r1", "r2")
    assert clock.changes == []
    clock.rounds(4, "r1", "r2")
    assert clock.paths.paths["r2"].lost == 20 * lost


def test_a_peer_that_answers_on_no_rail_has_stalled() -> None:
    clock = Clock()
    clock.rounds(3, "r1", "r2")
    assert (clock.rounds(int(LIMITS.stall / INTERVAL) - 1), clock.paths.stalled) == ([], False)
    stalled, *more = clock.rounds(200)
    assert isinstance(stalled, Stalled) and more == []
    assert (clock.paths.stalled, clock.hops()) == (True, ("r1", "r2"))
    (again,) = clock.rounds(3, "r1", "r2")
    assert isinstance(again, AnswersAgain) and again.seconds == pytest.approx(21.0, abs=0.5)
    assert not clock.paths.stalled


def test_a_peer_that_was_stopped_answers_late_on_all_rails() -> None:
    """Whichever rail is first, the others have their time from then on."""
    clock = Clock()
    questions = [clock.paths.probe(clock.now + INTERVAL * count)[0] for count in range(50)]
    clock.now += 5.0
    for number in questions:
        clock.paths.answered("r2", number, clock.now)
    assert not any(isinstance(change, Withdrawn) for change in clock.paths.judge(clock.now))
    clock.now += LIMITS.patience / 2
    for number in questions:
        clock.paths.answered("r1", number, clock.now)
    clock.now += 10 * LIMITS.patience
    assert not any(isinstance(change, Withdrawn) for change in clock.paths.judge(clock.now))


def test_time_in_which_this_process_was_stopped_counts_against_no_rail() -> None:
    clock = Clock()
    clock.rounds(3, "r1", "r2")
    clock.now += 3600.0
    assert clock.rounds(3, "r1", "r2") == []


def test_a_link_that_is_down_withdraws_at_once() -> None:
    clock = Clock()
    clock.rounds(3, "r1", "r2")
    assert clock.link("r1", False) == [Withdrawn("node1", "r1", Cause.LINK, clock.now, 2.0)]
    assert clock.hops() == ("r2",)
    assert clock.paths.probe(clock.now)[1] == ("r2",)


def test_a_rail_is_restored_after_its_hold_and_answers_in_a_row() -> None:
    clock = Clock()
    clock.link("r1", False)
    clock.link("r1", True)
    assert LIMITS.hold <= clock.until_restored("r1", "r1", "r2") < LIMITS.hold + 2 * INTERVAL
    assert clock.hops() == ("r1", "r2")
    clock.link("r1", False)
    clock.link("r1", True)
    clock.rounds(60, "r2")
    clock.rounds(LIMITS.answers - 1, "r1", "r2")
    assert clock.hops() == ("r2",)
    clock.rounds(1, "r1", "r2")
    assert clock.hops() == ("r1", "r2")


def test_a_link_that_is_still_up_or_still_down_changes_nothing() -> None:
    """Links are queried again and again."""
    clock = Clock()
    clock.rounds(3, "r1", "r2")
    (withdrawn,) = clock.link("r1", False)
    for _ in range(20):
        clock.rounds(1, "r2")
        assert clock.link("r1", False) == clock.link("r2", True) == []
    assert clock.paths.paths["r1"].suspected == clock.paths.paths["r1"].since
    assert isinstance(withdrawn, Withdrawn) and withdrawn.since == clock.paths.paths["r1"].since
    for _ in range(LIMITS.answers):
        clock.link("r1", True)
        clock.rounds(1, "r1", "r2")
    assert clock.hops() == ("r1", "r2")


def test_a_rail_that_flaps_is_held_down_longer_each_time_up_to_a_limit() -> None:
    clock = Clock()
    held = []
    for _ in range(6):
        clock.link("r1", False)
        clock.link("r1", True)
        held.append(clock.until_restored("r1", "r1", "r2"))
    for seconds, wanted in zip(held, (2.0, 4.0, 8.0, 16.0, 16.0, 16.0), strict=True):
        assert wanted <= seconds < wanted + 2 * INTERVAL
    clock.rounds(int(LIMITS.forget / INTERVAL) + 1, "r1", "r2")
    (change,) = clock.link("r1", False)
    assert isinstance(change, Withdrawn) and change.hold == LIMITS.hold


def test_a_held_rail_is_restored_early_if_no_other_is_left() -> None:
    clock = Clock()
    clock.link("r1", False)
    clock.link("r1", True)
    clock.rounds(2, "r1", "r2")
    assert clock.hops() == ("r2",)
    withdrawn, restored = clock.link("r2", False)
    assert isinstance(withdrawn, Withdrawn) and isinstance(restored, Restored)
    assert (restored.rail, restored.early) == ("r1", True)
    assert clock.hops() == ("r1",)


def test_both_rails_in_turn() -> None:
    clock = Clock()
    for _ in range(10):
        for other in ("r2", "r1"):
            clock.rounds(8, other)
            assert clock.hops() == (other,)
            clock.rounds(2, "r1", "r2")
    for path in clock.paths.paths.values():
        assert path.withdrawals == 10


def test_without_any_link_all_rails_are_hops() -> None:
    clock = Clock()
    clock.link("r1", False)
    clock.link("r2", False)
    assert clock.hops() == ("r1", "r2")
    assert clock.paths.probe(clock.now)[1] == ()
    clock.link("r2", True)
    assert clock.hops() == ("r2",)
    (restored,) = clock.rounds(1, "r2")
    assert isinstance(restored, Restored) and restored.rail == "r2"


def test_a_rail_that_stays_down_is_reported_once() -> None:
    clock = Clock()
    clock.rounds(int(100 / INTERVAL), "r1")
    withdrawn, stays = clock.changes
    assert isinstance(withdrawn, Withdrawn) and isinstance(stays, StaysDown)
    assert stays.seconds == pytest.approx(LIMITS.report, abs=0.2) and stays.cause is Cause.PROBES


def test_a_next_hop_that_was_missing_at_the_begin_is_restored_when_it_answers() -> None:
    clock = Clock(withdrawn=["r2"])
    assert clock.hops() == ("r1",)
    clock.rounds(LIMITS.answers, "r1", "r2")
    assert clock.hops() == ("r1", "r2")
    assert all(path.withdrawals == 0 for path in clock.paths.paths.values())


def test_answers_that_come_again_or_to_no_question_change_nothing() -> None:
    clock = Clock()
    number, _ = clock.paths.probe(clock.now)
    for _ in range(3):
        clock.paths.answered("r1", number, clock.now + 0.01)
        clock.paths.answered("r1", number + 1, clock.now + 0.01)
    clock.now += 1.0
    clock.paths.judge(clock.now)
    assert clock.paths.paths["r1"].answers == 1 and clock.paths.paths["r1"].rtt == pytest.approx(0.01)
    assert (clock.paths.paths["r2"].losses, clock.paths.paths["r2"].lost) == (1, 1)


def test_rounds_without_an_answer_are_given_up() -> None:
    clock = Clock()
    clock.rounds(5000)
    clock.rounds(3, "r1", "r2")
    for path in clock.paths.paths.values():
        assert (path.sent, path.lost) == (5003, 5000)


# In each step some rails answer, some links are up, and a time passes.
STEPS = st.lists(
    st.tuples(st.sets(st.sampled_from(RAILS)), st.sets(st.sampled_from(RAILS)), st.sampled_from([0.0, 0.05, 0.1, 0.3, 5.0])), max_size=80
)


@given(STEPS)
def test_in_every_order_of_events(steps: list[tuple[set[str], set[str], float]]) -> None:
    clock = Clock(RAILS)
    up = dict.fromkeys(RAILS, True)
    for answering, links, seconds in steps:
        for rail in RAILS:
            clock.link(rail, rail in links)
        clock.rounds(1, *answering)
        clock.now += seconds
        hops = clock.hops()
        assert hops and set(hops) <= set(RAILS)
        assert not links or set(hops) & links, "a next hop without a link is never the only one while there is another"
    for change in clock.changes:
        if isinstance(change, Withdrawn | Restored):
            assert up[change.rail] is isinstance(change, Withdrawn), "each path is withdrawn and restored in turn"
            up[change.rail] = isinstance(change, Restored)
        if isinstance(change, Withdrawn):
            assert LIMITS.hold <= change.hold <= LIMITS.hold_most
    assert up == {rail: path.up for rail, path in clock.paths.paths.items()}
    for rail in RAILS:
        clock.link(rail, True)
    clock.rounds(int(LIMITS.hold_most / INTERVAL) + LIMITS.answers + 2, *RAILS)
    assert clock.hops() == RAILS, "when all is well for long enough, every rail is used"


@given(STEPS, st.sampled_from(RAILS))
def test_a_rail_that_always_answers_is_never_withdrawn(steps: list[tuple[set[str], set[str], float]], good: str) -> None:
    clock = Clock(RAILS)
    for answering, links, seconds in steps:
        for rail in RAILS:
            clock.link(rail, rail in links or rail == good)
        clock.rounds(1, *answering, good)
        clock.now += seconds
        assert good in clock.hops()
    assert not any(isinstance(change, Withdrawn) and change.rail == good for change in clock.changes)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20))
def test_silence_on_all_rails_withdraws_nothing(parts: list[tuple[int, bool]]) -> None:
    """Whether this process looks in between, or was stopped itself."""
    clock = Clock()
    for count, stopped in parts:
        clock.rounds(count, stopped=stopped)
        clock.rounds(1, "r1", "r2")
    assert not any(isinstance(change, Withdrawn) for change in clock.changes)
