"""Which jobs the controller has to look at."""

from __future__ import annotations

import threading

from tests.schedulers.kubernetes.objects import GROUP, pod, resource

from understudy.controller.changes import Changes
from understudy.schedulers.kubernetes.names import Keys

LONG = 1e9


def test_at_first_all_and_then_what_has_changed() -> None:
    changes = Changes(Keys(GROUP))
    assert changes.take(LONG) is None
    changes.of_job(resource())
    changes.of_pod(pod("gpt-1"))
    changes.of_pod({"metadata": {"name": "x", "namespace": "ml", "labels": {f"{GROUP}/job": "other"}}})
    assert changes.take(LONG) == {("ml", "gpt"), ("ml", "other")}
    changes.of_pod(None)
    changes.of_job(resource())
    assert changes.take(LONG) is None, "what was listed again may have changed anywhere"


def test_all_when_nothing_was_taken_for_long() -> None:
    changes = Changes(Keys(GROUP))
    assert changes.take(LONG) is None
    assert changes.take(0.0) is None


def test_a_waiting_thread_is_woken() -> None:
    changes = Changes(Keys(GROUP))
    changes.take(LONG)
    found: list[set[tuple[str, str]] | None] = []
    waiting = threading.Thread(target=lambda: found.append(changes.take(LONG)))
    waiting.start()
    changes.of_job(resource())
    waiting.join(60)
    assert found == [{("ml", "gpt")}]
