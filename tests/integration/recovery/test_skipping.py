"""Sections that fail and are skipped (`on_error="report"`): the run is that of a script which does not try."""

from __future__ import annotations

import pytest
from tests.integration.training import Training, survived, training
from tests.message_texts import codes

from understudy.messages import recoveries, transactions

__all__ = ["training"]


@pytest.mark.gate
def test_a_section_that_fails_is_skipped_on_all_ranks(training: Training) -> None:
    outcome = training.run("skipping.py", "tries", faults="saving:32:1")
    incidents = survived(outcome, training.undisturbed("skipping.py", "leaves out"), len(outcome.incidents))
    *earlier, last = incidents  # the next section may fail, or a rank be lost, while an incident is open
    assert [(part["rank"], part["cause"]) for part in last["ranks"]] == [(1, "killed")] and last["decision"] == "redo"
    assert {(one["cause"], one["decision"], one["grade"]) for one in earlier} == {("section", "skip", "")}
    assert "OSError: [Errno 28] No space left on device" in outcome.output
    said = codes(outcome.output)  # of two ranks that fail together one may be stopped before it has failed
    assert 5 <= said.count(transactions.SECTION_FAILED.code) <= 8, outcome.output
    assert said.count(recoveries.SECTION_SKIPPED.code) in (4, 5), "the loss may come first"
