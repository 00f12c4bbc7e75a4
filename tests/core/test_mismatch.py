"""When crashes of survivors end a job, and when they are losses like any other. The whole of it: `tests/scenarios/survivors_crash.txt`."""

from __future__ import annotations

import pytest
from tests.message_texts import has

from understudy.core.mismatch import Crashes
from understudy.core.model import LossCause
from understudy.messages import losses


def test_the_second_survivor_that_crashes_at_a_transaction_is_named_with_the_first() -> None:
    crashes = Crashes.resumed(None, 7, {"w4": 1}, 3)
    assert crashes is not None
    crashes.count("w0", LossCause.CRASHED, "rank 0 crashed: SIGABRT")
    assert not crashes.verdict()
    again = Crashes.resumed(crashes, 7, {"w5": 0}, 3)
    assert again is not None and not again.verdict()
    again.count("w2", LossCause.CRASHED, "rank 2 crashed: SIGSEGV")
    both, newcomers = "rank 0 crashed: SIGABRT; rank 2 crashed: SIGSEGV", "rank 1 on w4, rank 0 on w5"
    assert again.verdict() == losses.SURVIVORS_CRASH(crashes=both, transaction=7, newcomers=newcomers)


@pytest.mark.parametrize("cause", [cause for cause in LossCause if cause is not LossCause.CRASHED])
def test_other_losses_do_not_count(cause: LossCause) -> None:
    crashes = Crashes(7, {"w4": 1})
    for worker in ("w0", "w2", "w3"):
        crashes.count(worker, cause, "lost")
    assert not crashes.verdict()


def test_newcomers_and_other_transactions_do_not_count() -> None:
    crashes = Crashes(7, {"w4": 1}, 3, ["rank 0 crashed"])
    crashes.count("w4", LossCause.CRASHED, "rank 1 crashed")
    assert not crashes.verdict()
    assert Crashes.resumed(crashes, 8, {"w5": 0}, 3) == Crashes(8, {"w5": 0}, 3)
    assert Crashes.resumed(None, 8, {}, 4) is None


def test_the_first_crash_of_the_only_survivor_ends_the_job() -> None:
    crashes = Crashes.resumed(None, 7, {"w2": 1}, 1)
    assert crashes is not None
    crashes.count("w0", LossCause.CRASHED, "rank 0 crashed: SIGABRT")
    assert has(crashes.verdict(), losses.SURVIVORS_CRASH, crashes="rank 0 crashed: SIGABRT")
