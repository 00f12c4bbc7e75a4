"""What transactions outside of loops have returned is kept, but not for ever: what is gone is known to be gone."""

from __future__ import annotations

import pytest
from tests.message_texts import has, refused

from understudy.messages import script
from understudy.worker.data import results as module
from understudy.worker.data.results import Results
from understudy.worker.encoding.codec import encode
from understudy.worker.errors import UnderstudyError


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, reported: list[str]) -> Results:
    monkeypatch.setattr(module, "MOST", 3)
    return Results(reported.append)


def on_newcomer(kept: Results, index: int) -> tuple[bool, object]:
    return Results().of_lost([0, -1, index], kept.encoded(), {})


def test_of_numbers_the_oldest_are_dropped_and_that_is_reported_once(kept: Results, reported: list[str]) -> None:
    for index in range(6):
        kept.keep([0, -1, index], float(index))
        assert len(reported) == int(index >= 3)
    for index in range(3):
        with refused(UnderstudyError, script.RESULT_GONE, place=[0, -1, index]):
            on_newcomer(kept, index)
    assert [on_newcomer(kept, index) for index in (3, 4, 5)] == [(True, 3.0), (True, 4.0), (True, 5.0)]
    assert on_newcomer(kept, 6) == (False, None)
    assert has(reported[0], script.RESULTS_DROPPED, most=3)


def test_what_returns_nothing_takes_no_room(kept: Results, reported: list[str]) -> None:
    kept.keep([0, -1, 0], "first")
    for index in range(1, 50):
        kept.keep([0, -1, index], None)
    assert not reported and len(kept.encoded()) < 10
    assert on_newcomer(kept, 0) == (True, "first")
    assert {on_newcomer(kept, index) for index in range(1, 50)} == {(True, None)}
    assert on_newcomer(kept, 50) == (False, None)  # no rank has been there


def test_a_none_before_a_dropped_result_is_unknown(kept: Results) -> None:
    """A None between results that are gone might have been one of them."""
    for index in range(12):
        kept.keep([0, -1, index], None if index % 2 else index)
    with pytest.raises(UnderstudyError):
        on_newcomer(kept, 3)
    assert on_newcomer(kept, 6) == (True, 6) and on_newcomer(kept, 7) == (True, None)


def test_room_is_bounded_too(kept: Results, reported: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM", 1000)
    kept.keep([0, -1, 0], b"x" * 2000)
    assert on_newcomer(kept, 0) == (True, b"x" * 2000) and not reported  # the newest is kept, however large
    kept.keep([1, -1, 0], 1)
    with pytest.raises(UnderstudyError):
        on_newcomer(kept, 0)
    assert reported


def test_what_cannot_be_handed_over_is_not_taken_for_nothing(kept: Results) -> None:
    kept.keep([0, -1, 0], object())
    for index in range(1, 6):
        kept.keep([0, -1, index], None)
    assert on_newcomer(kept, 0) == (False, None)
    assert not Results().is_known([0, -1, 0], kept.encoded())


def test_in_a_loop_those_of_the_iteration(kept: Results) -> None:
    kept.keep([0, -1, 0], "outside")
    kept.keep([0, 4, 0], 0.5)
    kept.keep([0, 5, 0], 0.25)
    assert Results().of_lost([0, 5, 0], kept.encoded(), {}) == (True, 0.25)
    assert Results().of_lost([0, 4, 0], kept.encoded(), {}) == (False, None)
    assert Results().of_lost([0, 5, 0], kept.encoded([0, 6, 0]), {}) == (False, None)
    assert on_newcomer(kept, 0) == (True, "outside")


def test_one_of_them_is_known_by_its_place(kept: Results) -> None:
    for place in ([0, -1, 0], [0, 4, 0]):
        kept.keep(place, 1.5)
        kept.keep([*place[:2], 1], None)
        kept.keep([*place[:2], 2], object())
        found = [kept.at([*place[:2], index]) for index in range(4)]
        assert found == [encode(1.5), encode(None), None, None]


def test_of_another_rank_is_noted() -> None:
    lost, other, newcomer = Results(), Results(), Results()
    other.keep([0, -1, 0], 1.5)
    assert newcomer.of_lost([0, -1, 0], lost.encoded(), other.encoded()) == (True, 1.5)
    assert newcomer.replaced == ["0.-1.0"]


def test_nothing_is_missed_of_a_function_that_returns_nothing() -> None:
    other, newcomer = Results(), Results()
    other.keep([0, 3, 0], None)
    other.keep([0, 3, 1], 1.5)
    assert newcomer.of_lost([0, 3, 0], {}, other.encoded(), returns_nothing=True) == (True, None)
    assert newcomer.replaced == []
    assert newcomer.of_lost([0, 3, 1], {}, other.encoded(), returns_nothing=True) == (True, 1.5), "it does return something"
    assert newcomer.of_lost([0, 3, 0], {}, other.encoded()) == (True, None)
    assert newcomer.replaced == ["0.3.1", "0.3.0"]


def test_a_newcomer_that_has_skipped_an_iteration_has_its_results() -> None:
    lead, newcomer, next_one = Results(), Results(), Results()
    lead.keep([0, -1, 0], 1)
    lead.keep([0, 11, 0], 0.5)
    newcomer.adopt([0, 11, 0], lead.encoded())
    assert next_one.is_known([0, 11, 0], newcomer.encoded())
    assert next_one.of_lost([0, 11, 0], {}, newcomer.encoded()) == (True, 0.5)
    newcomer.keep([0, 12, 0], 0.25)
    assert not next_one.is_known([0, 11, 0], newcomer.encoded())
