"""Silent nodes are found in time, and a watcher that was away blames no node."""

from __future__ import annotations

from understudy.detectors.heartbeats import Heartbeats

LIMIT, EVERY = 2.0, 0.25


def _run(watch: Heartbeats, start: float, stop: float, speaking: set[str]) -> dict[str, float]:
    """Look every 0.25 s from `start` until just before `stop`; return the last result."""
    found: dict[str, float] = {}
    for number in range(int((stop - start) / EVERY)):
        now = start + number * EVERY
        for node in speaking:
            watch.heard(node, now)
        found = watch.silent(now)
    return found


def test_a_silent_node_is_found_after_the_limit_and_not_before() -> None:
    watch = Heartbeats(LIMIT, EVERY)
    assert _run(watch, 0.0, 5.0, {"a", "b"}) == {}
    assert _run(watch, 5.0, 7.0, {"a"}) == {}
    assert _run(watch, 7.0, 7.25, {"a"}) == {"b": 2.25}
    watch.forget("b")
    assert _run(watch, 7.25, 12.0, {"a"}) == {}


def test_nodes_that_fall_silent_together_are_found_together() -> None:
    watch = Heartbeats(LIMIT, EVERY)
    assert _run(watch, 0.0, 5.0, {"a", "b", "c"}) == {}
    assert _run(watch, 5.0, 5.5, {"a", "b"}) == {}
    assert _run(watch, 5.5, 7.25, {"a"}) == {}, "c could be reported, but b is about to follow"
    assert _run(watch, 7.25, 7.75, {"a"}) == {"b": 2.25, "c": 2.75}


def test_no_node_is_awaited_for_long() -> None:
    watch = Heartbeats(LIMIT, EVERY)
    assert _run(watch, 0.0, 5.0, {"a", "b", "slow"}) == {}
    found: dict[str, float] = {}
    for number in range(11):
        assert found == {}
        now = 5.0 + number * EVERY
        watch.heard("slow", now - 1.75)
        watch.heard("a", now)
        found = watch.silent(now)
    assert found == {"b": 2.75}


def test_time_in_which_the_watcher_was_stopped_does_not_count() -> None:
    watch = Heartbeats(LIMIT, EVERY)
    assert _run(watch, 0.0, 5.0, {"a", "b"}) == {}
    assert watch.silent(60.0) == {}, "no node could be heard"
    assert _run(watch, 60.25, 61.5, {"a"}) == {}
    assert set(_run(watch, 61.5, 62.5, {"a"})) == {"b"}, "but a node that stays silent afterwards is"


def test_who_was_never_heard_is_not_watched() -> None:
    assert Heartbeats(LIMIT, EVERY).silent(100.0) == {}
