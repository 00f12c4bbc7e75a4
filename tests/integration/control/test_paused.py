"""A decision waits for PostgreSQL, however long that takes: ranks rest, the status has the reason, and the job goes on by itself."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.postgres import needs_postgres, postgres
from tests.integration.processes import marked, pid_of, send, wait_for_end
from tests.integration.service import Service
from tests.integration.training import Outcome, survived
from tests.message_texts import has
from tests.model.validate import validate

import understudy
from understudy.messages import orchestrators

pytestmark = needs_postgres
LEASE = "SECONDS = 3.0  # for which a lease is good"


@pytest.fixture
def patient(tmp_path: Path) -> Path:
    """The folder of an `understudy` whose orchestrators keep the lead while the database is away; else they would soon start again."""
    package = tmp_path / "patient" / "understudy"
    shutil.copytree(Path(understudy.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    leadership = package / "orchestrator" / "leadership.py"
    text = leadership.read_text()
    assert text.count(LEASE) == 1
    leadership.write_text(text.replace(LEASE, "SECONDS = 3600.0"))
    return package.parent


def test_a_recovery_waits_for_a_database_that_hangs(tmp_path: Path, patient: Path, undisturbed_spread: Callable[[int], Outcome]) -> None:
    with marked() as mark, postgres(tmp_path / "database") as database:
        service = Service(tmp_path, mark, UNDERSTUDY_DATABASE=database.url)
        service.source = patient
        service.kill_orchestrator()
        service.start_orchestrator()
        service.start_nodes("ab", 2)
        job = service.held("job")
        rank = pid_of(lambda: job.status()["ranks"][1])
        with database.frozen():
            send(rank, signal.SIGKILL)
            wait_for_end(rank)
            job.wait_until(lambda status: has(status["message"], orchestrators.JOB_PAUSED), "the reason of the pause")
            status = job.status()
            assert has(status["message"], orchestrators.JOURNAL_SILENT) and status["state"] == "recovering"
            assert not list(job.folder.glob("marker step * in generation 1")), "no rank has gone on"
        job.wait_for("step 7 on 1 in generation 1")
        (incident,) = survived(job.ends_like(undisturbed_spread(2)), undisturbed_spread(2))
        assert (incident["rank"], incident["cause"]) == (1, "killed")
        assert has(job.output, orchestrators.JOB_PAUSED) and has(job.output, orchestrators.JOB_GOES_ON)
        assert validate(database.url) == 1
