"""A rank's own time by events around collectives, on real processes: shown on its page, through a loss, and nothing else changes."""

from __future__ import annotations

from tests.integration.processes import wait_until
from tests.integration.training import LONG, Training, survived, training

from understudy.common.page_view import PageView
from understudy.links.page import PageReader
from understudy.messages import coverage

__all__ = ["training"]

LOOKS = 20


def test_the_rank_that_computes_longer_shows_more_time_of_its_own(training: Training) -> None:
    job = training.begin("timed.py", faults="backward:30:0", UNDERSTUDY_OWN_TIME="device")

    def pages() -> list[PageView]:
        return [PageReader(job.folder / "run" / "workers" / f"{rank['worker']}.page").read() for rank in job.status()["ranks"]]

    job.wait_for(coverage.COVERED.code)
    wait_until(lambda: job.status()["step"] > 40, "steps after the loss", LONG)
    before = pages()

    def seen() -> bool:
        pairs = list(zip(before, pages(), strict=True))
        fast, slow = (now.own_running - then.own_running for then, now in pairs)
        return min(now.looks - then.looks for then, now in pairs) >= LOOKS and bool(slow > 1.5 * fast)

    wait_until(seen, f"{LOOKS} measurements, and more time of rank 1", LONG)
    (job.folder / "end").touch()
    outcome = job.succeeds()
    reference = training.torchrun("timed.py", str(outcome.ask("status")["step"]), limit=4 * LONG)
    assert [incident["rank"] for incident in survived(outcome, reference)] == [0]
