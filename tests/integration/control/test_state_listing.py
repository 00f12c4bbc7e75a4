"""What of a script a newcomer would have and what not: the listing, and jobs that refuse to train on without it."""

from __future__ import annotations

import json

from tests.integration.training import Training, training, understudy
from tests.message_texts import has

from understudy.messages import census, coverage

__all__ = ["training"]


def test_the_listing_shows_what_a_newcomer_gets_and_what_not(training: Training) -> None:
    outcome = training.run("beside.py", "iterator", "differs", spares=0)
    assert outcome.code == 0, outcome.output
    run = str(outcome.folder / "run")
    reported = understudy("status", "--state", "--json", "--run-dir", run)
    found = json.loads(reported.stdout)
    known = {entry["name"]: entry for entry in found["entries"]}
    assert found["step"] == 8 and found["left_out"] == 0, found
    registered = {name: entry["same"] for name, entry in known.items() if entry["kind"] == "registered"}
    assert registered == {"model": True, "optimizer": True, "state": True} and known["model"]["bytes"] >= 5 * 4
    assert [known["counter"][key] for key in ("root", "kind", "same", "reason")] == ["beside.py", "adopted", True, ""] and known["counter"][
        "bytes"
    ]
    assert [known["own"][key] for key in ("root", "kind", "same", "reason")] == ["beside.py", "adopted", False, ""]
    assert known["ticks"]["kind"] == "moved" and has(known["ticks"]["reason"], census.LISTED_MOVED), known
    assert known["worst"]["kind"] == "left" and known["worst"]["root"] == "beside.py", known
    assert known["shown"]["kind"] == "ignored"
    table = understudy("status", "--state", "--run-dir", run).stdout
    assert "as of step 8" in table and "counter" in table and "beside.py" in table and "differ" in table
    notices = outcome.ask("status")["notices"]
    assert any(has(notice, coverage.ADOPTED, names="counter, own (beside.py)") for notice in notices), notices
    assert any(has(notice, census.COUNTER_MOVES, names="ticks (beside.py:40)") for notice in notices), notices
    assert any(has(notice, census.DIFFERS_BY_RANK, names="worst (beside.py:44)") for notice in notices), notices


def test_a_strict_job_trains_while_everything_is_covered(training: Training) -> None:
    outcome = training.begin("beside.py", spares=0, UNDERSTUDY_STRICT="1").ends()
    assert outcome.code == 0, outcome.output
    assert outcome.ask("status")["step"] == 9


def test_a_strict_job_ends_with_what_is_not(training: Training) -> None:
    flags = ["--nproc-per-node", "2", "--spares", "0", "--strict", "--run-dir", "FOLDER/run"]
    outcome = training.start(["-m", "understudy.cli", "run", *flags], "beside.py", "iterator").ends()
    assert outcome.code == 1, outcome.output
    assert "understudy.worker.errors.UsageError: US" in outcome.output
    assert has(outcome.output, census.COUNTER_MOVES, names="ticks (beside.py:40)")
    status = outcome.ask("status")
    assert has(status["message"], census.COUNTER_MOVES, name="ticks") and status["step"] <= 4, status
