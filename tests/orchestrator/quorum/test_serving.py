"""The member that leads serves the job, until its end or its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from understudy.core.events import StopAsked
from understudy.core.model import JobSpec, Timeouts
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.journal import Journal
from understudy.orchestrator.quorum import serving
from understudy.orchestrator.quorum.candidate import Candidate
from understudy.orchestrator.quorum.replicated import Replicated
from understudy.orchestrator.quorum.transport import Front
from understudy.orchestrator.security import Access
from understudy.orchestrator.settings import Settings


def test_one_whose_job_was_put_aside_goes_when_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        served: asyncio.Future[Jobs] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(serving, "create_app", lambda jobs, *others: served.set_result(jobs))
        elected: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        elected.set_result(1)
        member: Any = SimpleNamespace(elected=elected, guard=lambda: None, silent_since=lambda *which: None, watch=asyncio.Event().wait)
        writer: Any = Journal(tmp_path / "journal.db", pytest.fail)
        writer.lead = lambda member: None
        settings = Settings(JobSpec("job", 1, 1, spares=0), Timeouts())
        asked = asyncio.Event()
        front: Any = SimpleNamespace()
        leading = asyncio.create_task(
            serving._lead(
                cast(Candidate, member), cast(Replicated, writer), cast(Front, front), settings, Access(["secret"]), None, asked.wait()
            )
        )
        (job,) = (await served).all()
        await asyncio.sleep(0)
        job.service.submit(StopAsked("not wanted", 1))
        assert job.service.machine.state.ended is not None
        job.service.suspend()
        job.running.cancel()
        await asyncio.gather(job.running, return_exceptions=True)
        assert job.running.cancelled()
        asked.set()
        await leading

    asyncio.run(scenario())
