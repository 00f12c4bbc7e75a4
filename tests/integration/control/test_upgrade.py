"""An Understudy of this version on what one of an earlier version has left, and on what one of a later version has."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import httpx
from tests.integration.processes import marked, wait_until
from tests.integration.service import TOKEN, Service
from tests.integration.training import LONG, understudy
from tests.journals import SAID, as_version1, version1

from understudy.common.names import JOURNAL
from understudy.messages import orchestrators
from understudy.orchestrator import migrations

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def newer(path: Path) -> Path:
    with sqlite3.connect(version1(path)) as connection:
        connection.execute("update version set version = 99")
    connection.close()
    return path


def test_an_orchestrator_goes_on_with_the_jobs_of_version_1(tmp_path: Path) -> None:
    state = tmp_path / "orchestrator"
    state.mkdir()
    place = version1(state / JOURNAL)
    with marked() as mark:
        service = Service(tmp_path, mark)

        def as_before() -> None:
            with httpx.Client(base_url=service.url, headers=HEADERS) as client:
                for job, said in SAID.items():
                    for kind in ("status", "report"):
                        assert as_version1(client.get(f"/v1/jobs/{job}/{kind}").json()) == said[kind]

        as_before()
        service.wait_for_words("orchestrator.txt", orchestrators.JOURNAL_UPGRADED(path=place, found=1, known=migrations.VERSION))
        service.kill_orchestrator()
        service.start_orchestrator()
        as_before()
        assert service.command("cancel", "running").returncode == 0
        wait_until(lambda: {j["job"]: j["state"] for j in service.ask("jobs")}["running"] == "failed", "it has ended", LONG)


def test_what_a_newer_understudy_has_left_is_refused(tmp_path: Path) -> None:
    newer(tmp_path / JOURNAL)
    (tmp_path / "job.json").write_text('{"spec": {}, "program": [], "started": 1}')
    words = orchestrators.JOURNAL_NEWER(found=99, known=migrations.VERSION)
    with marked():
        for command in ("status", "report"):
            done = understudy(command, "--run-dir", str(tmp_path))
            assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr
        served = understudy("orchestrator", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path))
        assert served.returncode == 2 and words in served.stderr and "Traceback" not in served.stderr


def test_status_and_report_of_a_run_of_version_1(tmp_path: Path) -> None:
    place = version1(tmp_path / JOURNAL)
    before = place.read_bytes()
    (tmp_path / "job.json").write_text('{"spec": {}, "program": [], "started": 1}')
    for command in ("status", "report"):
        done = understudy(command, "--run-dir", str(tmp_path), "--json")
        assert as_version1(json.loads(done.stdout)) == SAID["finished"][command], "of a run's only job, the first one here"
    assert place.read_bytes() == before
