"""When a node is lost: by times that are passed in."""

from __future__ import annotations

from collections.abc import Callable

from understudy.orchestrator.liveness import GRACE, MARGIN, WATCH, Liveness, Losses

LIMIT = 4.0
NODES = {"a": 0, "b": 1, "c": 2}
WALL = 1_000_000.0  # unix time at 0 of the monotonic clock


def watched(
    far: bool = True, up: Callable[[str], bool] = lambda node: False, silent_since: Callable[[int, float], float | None] = lambda *_: None
) -> Liveness:
    return Liveness(LIMIT, WALL, far=far, up=up, silent_since=silent_since)


def look(liveness: Liveness, now: float, connected: str = "", quiet: str = "") -> Losses:
    """All that are connected have just been heard, but those that are `quiet`."""
    for node in set(connected) - set(quiet):
        liveness.heard(node, now)
    return liveness.look(NODES, set(connected), now, WALL + now)


def names(found: Losses) -> list[str]:
    return [gone.node for gone in found.lost]


def test_an_agent_that_was_disconnected_has_the_limit_to_come_again() -> None:
    liveness = watched()
    liveness.wait_for("a", 10, WALL + 10)
    liveness.wait_for("b", 11, WALL + 11)
    assert names(look(liveness, 10 + LIMIT - 0.1, "c")) == []
    liveness.connected("b", 13)
    found = look(liveness, 10 + LIMIT, "bc")
    assert [(gone.node, gone.happened) for gone in found.lost] == [("a", WALL + 10)], "since it was disconnected"
    assert names(look(liveness, 11 + LIMIT, "bc")) == [], "neither twice, nor who has come"


def test_the_agent_of_this_very_host_and_one_of_a_host_that_is_up_have_longer() -> None:
    here, up = watched(far=False), watched(up=lambda node: node == "a")
    for liveness in (here, up):
        liveness.wait_for("a", 0, WALL)
        assert names(look(liveness, GRACE - 0.1)) == []
        assert names(look(liveness, GRACE)) == ["a"]


def test_after_a_restart_agents_have_time_to_find_the_orchestrator() -> None:
    liveness = watched()
    for node in NODES:
        liveness.resumed(node, 0, WALL)
    liveness.connected("b", 1)
    assert set(liveness.awaited) == {"a", "c"}
    assert names(look(liveness, GRACE - 0.1, "b")) == []
    assert names(look(liveness, GRACE, "b")) == ["a", "c"]
    assert not liveness.awaited


def test_but_less_where_the_host_is_silent_in_every_other_way_and_most_others_have_come() -> None:
    def since(node_rank: int, seconds: float) -> float | None:
        assert seconds == LIMIT
        return WALL - 3.0 if node_rank == NODES["a"] else None

    liveness = watched(silent_since=since)
    for node in NODES:
        liveness.resumed(node, 0, WALL)
    liveness.connected("b", 0)
    now = LIMIT + MARGIN
    assert names(look(liveness, now, "b")) == [], "one of three: it may be us whom nobody finds"
    liveness.connected("c", 0)
    assert names(look(liveness, now - 0.1, "bc")) == [], "not before its own limit and a margin"
    found = look(liveness, now, "bc")
    assert [(gone.node, gone.happened) for gone in found.lost] == [("a", WALL - 3.0)]


def test_who_is_connected_and_silent_is_lost_and_its_connection_is_to_be_closed() -> None:
    liveness, now = watched(), 0.0
    liveness.connected("a", now)
    liveness.connected("b", now)
    found = look(liveness, now, "ab", quiet="a")
    while not found.lost and now < 3 * LIMIT:
        now += WATCH
        found = look(liveness, now, "ab", quiet="a")
    assert (names(found), found.silent) == (["a"], ("a",))
    assert LIMIT < now <= 1.25 * LIMIT + WATCH
    assert abs(found.lost[0].happened - WALL) < WATCH, "when it was heard last"
    liveness.disconnected("a")
    assert look(liveness, now + WATCH, "b") == Losses((), ())


def test_nodes_that_are_lost_together_are_told_together_the_earliest_first() -> None:
    liveness = watched()
    liveness.wait_for("b", 1, WALL + 1)
    liveness.wait_for("a", 0, WALL)
    assert names(look(liveness, 1 + LIMIT)) == ["a", "b"]


def test_silence_on_this_very_host_says_nothing() -> None:
    liveness = watched(far=False)
    liveness.connected("a", 0)
    assert look(liveness, 0, "a", quiet="a") == Losses((), ())
    for number in range(100):
        assert look(liveness, number * WATCH, "a", quiet="a") == Losses((), ())
