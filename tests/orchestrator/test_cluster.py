"""What the nodes of a service are suspected of: no job is placed there while it holds, until a person says otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import ValidationError
from tests.core.core_job import Job

from understudy.core.events import LostNode, NodesLost, NodeTainted
from understudy.core.model import JobSpec, Timeouts
from understudy.detectors.base import LEFT_OUT, Evidence, Severity, Subject
from understudy.links.messages import EndPart, Hello, Part, Seen, decode, encode
from understudy.links.submission import Submission
from understudy.messages import wire
from understudy.orchestrator.cluster import LATE, Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.security import Access

HOT = Evidence("thermometer", Subject.NODE, "n0", Severity.SUSPECT, "91 degrees", 100.0)


def test_a_person_s_word_outlives_what_an_agent_repeats(tmp_path: Path) -> None:
    job = Job(JobSpec("job", world_size=2, workers_per_node=1, nodes=2, spares=2))
    served = SimpleNamespace(service=SimpleNamespace(machine=job.machine))
    observed: list[Evidence] = []
    jobs = SimpleNamespace(all=lambda: [served], observe=lambda evidence, may: observed.append(evidence), aside={})

    async def scenario() -> None:
        cluster = Cluster(cast(Jobs, jobs), tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        link = cluster.attach(Hello("n0", "here", 1, "", {}, ()))
        for harmless in (replace(HOT, severity=Severity.NOTE), replace(HOT, kind=LEFT_OUT), replace(HOT, until=101.0)):
            cluster.observe(harmless)
            assert cluster.taint("n0") == ""
        cluster.receive(link, encode(Seen("thermometer", "node", "suspect", "", "", "91 degrees", 100.0, 0.0)))
        assert cluster.taint("n0") == "91 degrees (thermometer)"
        job.machine.handle(NodeTainted("n0", ""), 200.0)
        cluster.trust("n0")
        cluster.observe(HOT)
        assert cluster.taint("n0") == ""
        cluster.observe(replace(HOT, happened=201.0))
        assert cluster.taint("n0") == "91 degrees (thermometer)"
        assert len(observed) == 6, "each job decides for itself"

    asyncio.run(scenario())


def test_a_part_on_a_node_that_is_back_is_started_once(tmp_path: Path) -> None:
    """Until it has said that it is there, which takes it seconds, a look at the nodes asks for nothing more."""
    job = Job(JobSpec("job", world_size=2, workers_per_node=1, nodes=2, spares=2))
    job.machine.handle(NodesLost((LostNode("n0", "silent"),)), 100.0)
    served = SimpleNamespace(name="job", service=SimpleNamespace(machine=job.machine))
    jobs = SimpleNamespace(all=lambda: [served], get=lambda name: served, aside={})

    async def scenario() -> None:
        cluster = Cluster(cast(Jobs, jobs), tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        link = cluster.attach(Hello("n0", "here", 40, "", {}, ()))
        cluster._requests["job"] = Submission(name="job", program=["train.py"], folder="/", nodes=2, spares=2)
        for _ in range(10):
            cluster._bring_back()
        assert link.outbox.qsize() == 1 and cluster.nodes["n0"].restarts == {"job": 1}

    asyncio.run(scenario())


def test_a_job_that_no_nodes_could_hold_keeps_no_other_waiting(tmp_path: Path) -> None:
    """One that would fit if others ended does: else small jobs would overtake it for ever."""
    jobs = SimpleNamespace(all=list, get=lambda name: None, aside={})

    async def scenario() -> None:
        cluster = Cluster(cast(Jobs, jobs), tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        cluster._ready_at = 0.0
        link = cluster.attach(Hello("n0", "here", 8, "", {}, ()))

        def waits(name: str, ranks: int) -> None:
            cluster._requests[name] = Submission(name=name, program=["train.py"], folder="/", workers_per_node=ranks, spares=0)
            cluster.waiting[name] = ""

        waits("huge", 9)
        waits("six", 6)
        cluster._place()
        assert list(cluster.waiting) == ["huge"] and link.outbox.qsize() == 1
        waits("four", 4)
        waits("one", 1)
        cluster._place()
        assert list(cluster.waiting) == ["huge", "four", "one"], "the first of those that could run has its turn"

    asyncio.run(scenario())


def test_a_part_of_a_job_that_has_ended_may_first_show_which_journal_it_depends_on(tmp_path: Path) -> None:
    """It connects to the job's service by itself, which ends it, or puts the job aside. Only then is it ended from here, once."""
    over = SimpleNamespace(name="job", running=SimpleNamespace(done=lambda: True))
    known = {"job": over}
    jobs = SimpleNamespace(all=list, get=known.get, aside={})

    async def scenario() -> None:
        cluster = Cluster(cast(Jobs, jobs), tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        hello = Hello("n0", "here", 8, "", {}, (Part("job", 0, 1, 0),))
        link, now = cluster.attach(hello), asyncio.get_running_loop().time()
        cluster._end_late_parts(now + LATE - 1.0)
        assert link.outbox.empty()
        cluster._end_late_parts(now + LATE + 1.0)
        cluster._end_late_parts(now + LATE + 2.0)
        assert link.outbox.qsize() == 1 and decode(str(link.outbox.get_nowait())) == EndPart("job")
        link = cluster.attach(hello)
        del known["job"]  # it is put aside
        cluster._end_late_parts(now + 3 * LATE)
        assert link.outbox.empty()

    asyncio.run(scenario())


def test_more_ranks_than_any_job_has_are_refused() -> None:
    with pytest.raises(ValidationError, match=wire.TOO_MANY_RANKS.code):
        Submission(name="huge", program=["train.py"], folder="/", nodes=100_000, workers_per_node=1024)
