"""Which of several replicas is odd, and when that cannot be decided."""

from __future__ import annotations

from understudy.core.coverage import Replicas
from understudy.core.judgement import Difference, differences, is_parameter, is_training_state, sides_of

WEIGHT, MOMENT, SETTINGS = "model/parameter/weight", "optimizer/state/0/exp_avg", "optimizer/settings"
OWNERS = {MOMENT: WEIGHT}
NO_OWNERS: dict[int, dict[str, str]] = {rank: {} for rank in range(4)}


def shared(*entries: str, ranks: int = 4) -> Replicas:
    return Replicas(dict.fromkeys(entries, (0,) * ranks))


def moved(entry: str) -> dict[int, set[str]]:
    return {rank: {entry} for rank in range(4)}


def tables(entry: str, *digests: int) -> dict[int, dict[str, int]]:
    return {rank: {entry: digest} for rank, digest in enumerate(digests)}


def test_more_than_half_must_speak_against_a_rank() -> None:
    assert Difference("x", sides_of({0: 7, 1: 7, 2: 8})).odd == (2,)
    assert Difference("x", sides_of({0: 7, 1: 8})).odd == ()
    assert Difference("x", sides_of({0: 7, 1: 7, 2: 8, 3: 8})).odd == ()
    assert Difference("x", sides_of({0: 7, 1: 7, 2: 8, 3: 9})).odd == (), "half is not more than half"
    assert Difference("x", sides_of({0: 7, 1: 7, 2: 7, 3: 8, 4: 9})).odd == (3, 4)
    assert Difference("x", sides_of({0: 1, 1: 2, 2: 3})).odd == ()


def test_the_odd_one_is_found_in_what_is_proven_only() -> None:
    known = shared(WEIGHT)
    assert differences(known, tables(WEIGHT, 5, 5, 6, 5), moved(WEIGHT), NO_OWNERS) == [Difference(WEIGHT, ((0, 1, 3), (2,)))]
    assert differences(known, tables(WEIGHT, 5, 5, 6, 5), {}, NO_OWNERS) == []
    assert differences(known, tables(WEIGHT, 5, 5, 5, 5), moved(WEIGHT), NO_OWNERS) == []
    assert differences(shared(), tables(WEIGHT, 5, 5, 6, 5), moved(WEIGHT), NO_OWNERS) == [], "it was never compared"


def test_shards_are_compared_with_their_own_replicas() -> None:
    known = Replicas({WEIGHT: (0, 1, 0, 1)})
    assert differences(known, tables(WEIGHT, 5, 6, 5, 6), moved(WEIGHT), NO_OWNERS) == []
    assert differences(known, tables(WEIGHT, 5, 6, 5, 7), moved(WEIGHT), NO_OWNERS) == [Difference(WEIGHT, ((1,), (3,)))]


def test_absent_ranks_do_not_speak_and_those_without_the_entry_do_not_count() -> None:
    known = Replicas({WEIGHT: (0, 0, 0, -1)})
    found = tables(WEIGHT, 5, 6, 6)
    del found[1]
    assert differences(known, found, moved(WEIGHT), NO_OWNERS) == [Difference(WEIGHT, ((0,), (2,)))]


def test_a_rank_that_has_lost_the_entry_is_odd() -> None:
    found = {**tables(WEIGHT, 5, 5), 2: {}}
    assert differences(shared(WEIGHT, ranks=3), found, moved(WEIGHT), NO_OWNERS)[0].odd == (2,)


def test_a_counter_of_different_parameters_may_part() -> None:
    """Two experts: other weights, and the same number of steps until one of them is left out."""
    known = Replicas({WEIGHT: (0, 1, 2), MOMENT: (0, 0, 0)})
    assert differences(known, tables(MOMENT, 5, 5, 6), moved(MOMENT), dict.fromkeys(range(4), OWNERS)) == []
    assert differences(shared(WEIGHT, MOMENT, ranks=3), tables(MOMENT, 5, 5, 6), moved(MOMENT), dict.fromkeys(range(4), OWNERS))[0].odd == (
        2,
    )


def test_settings_are_judged_among_those_that_share_all_parameters() -> None:
    known = Replicas({WEIGHT: (0, 1, 0, 1), SETTINGS: (0, 0, 0, 0)})
    assert differences(known, tables(SETTINGS, 5, 6, 5, 6), moved(SETTINGS), NO_OWNERS) == []
    assert differences(known, tables(SETTINGS, 5, 6, 5, 7), moved(SETTINGS), NO_OWNERS) == [Difference(SETTINGS, ((1,), (3,)))]


def test_gradients_are_neither_parameters_nor_training_state() -> None:
    assert is_parameter(WEIGHT) and not is_parameter(WEIGHT + "/gradient") and not is_parameter(MOMENT)
    assert all(map(is_training_state, (WEIGHT, MOMENT, SETTINGS))) and not is_training_state(WEIGHT + "/gradient")


def test_what_moved_elsewhere_proves_nothing_here() -> None:
    """Two pairs of replicas: what one pair has seen change is not known to be shared in the other."""
    known = Replicas({WEIGHT: (0, 0, 1, 1)})
    found = tables(WEIGHT, 5, 6, 7, 7)
    assert differences(known, found, {2: {WEIGHT}}, NO_OWNERS) == []
    assert differences(known, found, {1: {WEIGHT}}, NO_OWNERS) == [Difference(WEIGHT, ((0,), (1,)))]


def test_the_gradient_of_a_parameter_is_no_training_state_whatever_the_parameter_is_called() -> None:
    name = "model/parameter/recurrent/state/weight"
    assert is_training_state(name) and not is_training_state(f"{name}/gradient")
