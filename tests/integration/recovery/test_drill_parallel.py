"""Drills in a job with every form of parallelism at once: ranks are proven in turn, a loss after them is survived, bit by bit."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.integration.processes import pid_of, send, wait_until
from tests.integration.recovery.test_drill import begin, drill, wait_for_spare
from tests.integration.training import LONG, Started, Training, training
from tests.message_texts import has

from understudy.messages import drills, recoveries

__all__ = ["training"]

JOB = Path(__file__).parents[2] / "drills" / "jobs" / "parallel.py"
RANKS = 8
DRILLED = range(RANKS) if os.environ.get("EVERY_RANK") else (2, 5)  # every one in `make drills`; here one of each stage


def finals(folder: Path) -> list[dict[str, str]]:
    return [json.loads((folder / f"final-{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.timeout(2400)  # up to eight drills, one after the other, each of which needs a ninth and a tenth process
def test_ranks_of_data_pipeline_and_tensor_parallelism_are_proven_and_one_is_lost(training: Training) -> None:
    started: Started = begin(training, str(JOB), ranks=RANKS)
    for rank in DRILLED:
        code, found = drill(started, rank)
        assert (code, found["verdict"], found["detail"]) == (0, "same", ""), found
        assert found["collectives"] > 4, found
        wait_for_spare(started)
    send(pid_of(lambda: started.status()["ranks"][5]), signal.SIGKILL)
    wait_until(lambda: has(started.output, recoveries.INCIDENT_OVER, number=1), "the rank is replaced", LONG)
    (started.folder / "stop").touch()
    (incident,) = started.succeeds().incidents
    assert has(incident["notes"][0], drills.WAS_PROVEN, which="rank 5"), incident
    here = finals(started.folder)
    reference = training.torchrun(str(JOB), "--steps", here[0]["committed"], ranks=RANKS)
    assert here == finals(reference.folder)
