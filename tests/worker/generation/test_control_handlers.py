"""Set-up records of lost ranks that a survivor publishes: at once, and those that arrive while it is called, too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from understudy.core.commands import Abort
from understudy.worker.collectives.device_times import DeviceTimes
from understudy.worker.generation.control_handlers import ControlHandlers
from understudy.worker.progress import Progress
from understudy.worker.state.buddy_store import BuddyStore
from understudy.worker.state.preallocation import Preallocation
from understudy.worker.state.registry import State

ABORT = Abort("w1", 3, "host:1", (0, 2), "lost")


class Published(ControlHandlers):
    """Says what it would put into the store."""

    def __init__(self, membership: Any) -> None:
        super().__init__(Progress(1, 4), membership, Preallocation(State()), DeviceTimes(None))
        self.store: BuddyStore = membership.store
        self.put: list[tuple[int, str, dict[str, bytes]]] = []

    def _put(self, generation: int, store: str, named: dict[str, bytes]) -> None:
        self.put.append((generation, store, named))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Published:
    monkeypatch.setattr("understudy.worker.generation.control_handlers.threading.Thread", _AtOnce)
    return Published(SimpleNamespace(store=BuddyStore()))


class _AtOnce:
    def __init__(self, target: Any, args: tuple[Any, ...], daemon: bool) -> None:
        self.start = lambda: target(*args)


def test_a_record_that_comes_after_the_abort_is_published_when_the_rank_has_stopped(answers: Published) -> None:
    store = answers.store
    store.put_setup(2, b"two")
    answers.publish(ABORT.generation, ABORT.store, ABORT.lost)
    store.put_setup(0, b"zero")  # the main thread had received it already when its connections were broken
    answers.publish_rest(ABORT)
    assert answers.put == [(3, "host:1", {"setup/2": b"two"}), (3, "host:1", {"setup/0": b"zero"})]


def test_what_was_published_is_not_published_again_when_the_rank_rests(answers: Published) -> None:
    answers.store.put_setup(2, b"two")
    answers.publish(ABORT.generation, ABORT.store, ABORT.lost)
    answers.publish_rest(ABORT)
    assert len(answers.put) == 1


def test_a_rank_that_rests_for_a_later_abort_publishes_for_that(answers: Published) -> None:
    answers.store.put_setup(2, b"two")
    answers.publish(2, "older:1", (2,))
    answers.publish_rest(ABORT)
    assert answers.put[-1] == (3, "host:1", {"setup/2": b"two"})
