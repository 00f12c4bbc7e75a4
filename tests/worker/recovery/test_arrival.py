"""A newcomer that has reported Verified is a rank, even if its generation ends before the others learn of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from understudy.worker.errors import GenerationAborted
from understudy.worker.recovery.arrival import Arrival


def arrival(*, is_failure: bool) -> Any:
    made: Any = Arrival.__new__(Arrival)
    made._progress = SimpleNamespace(rank=3)
    made._membership = SimpleNamespace(is_failure=lambda error: is_failure, newest=5, broken=-1)
    return made


def meeting(error: RuntimeError | None = None) -> Any:
    def put(key: str, value: bytes) -> None:
        kept.append(key)
        if error is not None:
            raise error

    kept = list[str]()
    return SimpleNamespace(put=put, kept=kept)


def test_it_is_published() -> None:
    newcomer, there = arrival(is_failure=False), meeting()
    newcomer._publish_verified(there)
    assert there.kept == ["verified/3"] and newcomer._membership.broken == -1


def test_a_generation_that_has_ended_is_left_at_the_next_begin_as_any_rank_does() -> None:
    """Else it would wait as a newcomer for a decision that waits for its answer."""
    newcomer = arrival(is_failure=True)
    newcomer._publish_verified(meeting(GenerationAborted("rank 1 was lost")))
    assert newcomer._membership.broken == 5


def test_an_error_that_comes_from_no_loss_is_raised() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        arrival(is_failure=False)._publish_verified(meeting(RuntimeError("a bug")))
