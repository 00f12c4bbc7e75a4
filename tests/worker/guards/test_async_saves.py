"""Checkpoints that are saved in the background end before the vote of the transaction that has begun them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from tests.message_texts import has
from tests.worker.steps import step_of
from torch.distributed.checkpoint import _async_thread_executor

from understudy.messages import script
from understudy.worker import patches
from understudy.worker.errors import GenerationAborted
from understudy.worker.guards.async_saves import AsyncSaves


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What a save waits for, and then gives or raises, one after the other."""
    outcomes: list[Any] = []

    def save(*args: Any, **kwargs: Any) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome.wait(60) if isinstance(outcome, Event) else outcome

    monkeypatch.setattr(_async_thread_executor, "save_wrapper", save)
    for patch in reversed(patches.installed()):  # of runtimes that other tests have made in this process, one around the other
        if patch.target.endswith("execute_save"):
            patch.remove()
    before = patches.installed()
    yield outcomes
    for patch in [one for one in patches.installed() if one not in before]:
        patch.remove()


def _save() -> Future[Any]:
    return _async_thread_executor._ThreadBasedAsyncCheckpointExecutor().execute_save({})


def test_a_save_is_waited_for_before_the_vote_and_reported(saved: list[Any]) -> None:
    reported = list[str]()
    saves, step, go = AsyncSaves(lambda: False, reported.append), step_of("save", "section"), Event()
    saves.attempt(step)
    saves.before_vote(step)
    assert reported == []
    saved += [go]
    save = _save()
    with ThreadPoolExecutor(1) as pool:
        vote = pool.submit(saves.before_vote, step)
        assert not save.done() and not vote.done()
        go.set()
        vote.result(60)
    assert save.done() and has(reported[0], script.SAVE_WAITED_FOR, function="save")
    saves.passed(step)
    saves.before_vote(step)
    assert len(reported) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_save_that_fails_is_done_again_after_a_loss_only(saved: list[Any], lost: bool) -> None:
    saves, step = AsyncSaves(lambda: lost, lambda text: None), step_of("save", "section")
    saves.attempt(step)
    saved += [OSError("no space left on device")]
    save = _save()
    if lost:
        with pytest.raises(GenerationAborted):
            saves.before_vote(step)
        saves.rollback(step)
        assert save.result() is None  # the redo, which saves again, may ask first how this one ended
    else:
        saves.before_vote(step)
        assert isinstance(save.exception(), OSError)
