"""What is remembered of workers that start."""

from __future__ import annotations

from tests.core.core_job import Job, of

from understudy.core import commands, events
from understudy.core.model import JobSpec


def test_a_worker_that_has_started_is_not_started_again_when_its_agent_connects_again() -> None:
    job = Job(JobSpec("job", 2, 2, spares=0), forming=True)
    job.submit(events.WorkerStarted("w0", "n0", 100))
    said = job.submit(events.NodeJoined("n0", "h0", 0))
    assert [start.worker for start in of(commands.StartWorker, said)] == ["w1"]
