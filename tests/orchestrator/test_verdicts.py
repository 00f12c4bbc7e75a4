"""The core's own decisions are evidence, too; and no other source can use its name, or an operator's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.message_texts import codes

from understudy.core.events import (
    Committed,
    Event,
    LostNode,
    NodeJoined,
    NodesLost,
    NodeTainted,
    Observed,
    ReplicasDiffer,
    WorkerStarted,
    WorkerWarm,
)
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Timeouts
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.links.messages import Seen, encode
from understudy.messages import service_jobs
from understudy.orchestrator.chain import Chain
from understudy.orchestrator.journal import JobJournal
from understudy.orchestrator.service import Service
from understudy.policy.rules import parse

HOT = Evidence("thermometer", Subject.NODE, "n0", Severity.SUSPECT, "91 degrees", 100.0)
HOLDS = '[[rule]]\nname = "silent"\ndetector = "heartbeat"\naction = "taint"\nhold = "1h"'
ALL_LEAVE = '[[rule]]\nname = "corrupt"\ndetector = "corrupt"\naction = "leave"\nhold = "1h"'


class Running:
    """The service of a job that trains: three ranks with the same state, one on each node."""

    def __init__(self, policy: str = "", *, shared: bool = False) -> None:
        self.reported: list[str] = []
        self.journalled: list[Event] = []
        self.now = 100.0
        self.machine = Machine(JobSpec("job", 3, 1, 3, spares=3), Timeouts(heartbeat=0.1, node_lost=0.3))
        journal = JobJournal(lambda entry: self.journalled.append(entry[1]) if isinstance(entry, tuple) else None, Chain())
        rules = parse(policy, "x.toml") if policy else None
        self.service = Service(
            self.machine, journal, clock=lambda: self.now, tell=self.reported.append, far=True, policy=rules, shared=shared
        )
        links = [self.service.attach(NodeJoined(f"n{number}", "127.0.0.1", number)) for number in range(3)]
        for name, known in list(self.machine.state.workers.items()):
            self.service.submit(WorkerStarted(name, known.node, 1))
            self.service.submit(WorkerWarm(name, "127.0.0.1:7000"))
        for worker in self.machine.state.ranks.values():
            self.service.submit(Committed(worker, 0, 0, 1))
        self.links = {link.node: link for link in links}

    def taints(self, node: str) -> dict[tuple[str, str], float]:
        return {key: taint.until for key, taint in self.machine.state.nodes[node].taints.items()}

    def observed(self) -> list[tuple[str, str, str]]:
        return [(event.detector, event.name, event.severity) for event in self.journalled if isinstance(event, Observed)]


def run(scenario: Callable[[], None]) -> None:
    async def inside() -> None:
        scenario()

    asyncio.run(inside())


@pytest.mark.parametrize("name", ["operator", "corrupt", "drain", "check", "heartbeat"])
def test_no_other_detector_can_speak_as_a_person_or_the_core_does(name: str) -> None:
    """A process on a node, or with its agent's token: it neither taints the node nor lifts an operator's taint."""

    def scenario() -> None:
        job = Running()
        liar = replace(HOT, detector=name)
        job.service.observe(liar)
        job.service.look()
        assert job.taints("n0") == {} and job.observed() == []
        job.service.submit(NodeTainted("n0", "a new kernel", name, leave=True))
        for lie in (replace(liar, happened=102.0), replace(liar, until=103.0)):
            job.service.observe(lie)
            job.service.look()
        assert job.taints("n0") == {(name, ""): 0.0}
        assert job.observed() == ([("corrupt", "n0", "lost")] if name == "corrupt" else []), "what the core has set is evidence of its own"
        wanted = service_jobs.RESERVED_DETECTOR(node="n0", detector=name)
        assert [line for line in job.reported if codes(line) == [wanted.code]] == [wanted]

    run(scenario)


@pytest.mark.parametrize("shared", [False, True], ids=["run", "service"])
def test_in_a_service_a_job_s_part_is_no_witness_against_the_node(shared: bool) -> None:
    """The submitter of the job has its token."""

    def scenario() -> None:
        job = Running(shared=shared)
        for _ in range(2):
            job.service.receive(job.links["n0"], encode(Seen("thermometer", "node", "suspect", "", "", "91 degrees", 100.0, 0.0)))
        job.service.look()
        assert list(job.taints("n0")) == ([] if shared else [("thermometer", "")])
        assert job.reported.count(service_jobs.PART_SAW(node="n0")) == shared

    run(scenario)


def test_a_corrupt_rank_is_evidence_once() -> None:
    def scenario() -> None:
        job = Running()
        rank = 1
        node = job.machine.state.holder(rank).node
        job.service.submit(ReplicasDiffer(job.machine.state.ranks[0], 0, (rank,), (), "weight is not the same"))
        for _ in range(3):
            job.service.look()
        assert job.observed() == [("corrupt", node, "lost")]
        assert job.taints(node) == {("corrupt", ""): 0.0} and not job.machine.state.nodes[node].taints["corrupt", ""].leave

    run(scenario)


def test_a_policy_may_have_all_ranks_leave_the_node_of_a_corrupt_one_and_cannot_forgive_it() -> None:
    def scenario() -> None:
        job = Running(ALL_LEAVE)
        node = job.machine.state.holder(1).node
        job.service.submit(ReplicasDiffer(job.machine.state.ranks[0], 0, (1,), (), "weight is not the same"))
        job.service.look()
        assert job.taints(node) == {("corrupt", ""): 0.0} and job.machine.state.nodes[node].taints["corrupt", ""].leave

    run(scenario)


@pytest.mark.parametrize(("policy", "until"), [("", None), (HOLDS, 3700.0)])
def test_a_silent_node_is_evidence_and_a_policy_may_keep_it_away(policy: str, until: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario() -> None:
        job = Running(policy)
        loop = asyncio.get_running_loop()
        job.service.detach(job.links["n2"])
        then = loop.time() + 60.0
        monkeypatch.setattr(loop, "time", lambda: then)
        for node in ("n0", "n1"):
            job.service._liveness.heard(node, then)
        assert job.service._look_for_silence()
        assert job.observed() == [("heartbeat", "n2", "lost")], job.reported
        order = [type(event) for event in job.journalled if isinstance(event, NodesLost | Observed)]
        assert order == [NodesLost, Observed], "what is decided goes out first"
        assert job.taints("n2") == ({} if until is None else {("heartbeat", ""): until})
        job.service.attach(NodeJoined("n2", "127.0.0.1", 2, workers=()))
        job.service.look()
        assert not job.machine.state.nodes["n2"].lost
        assert job.taints("n2") == ({} if until is None else {("heartbeat", ""): until})

    run(scenario)


def test_no_evidence_is_made_for_a_job_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario() -> None:
        job = Running()
        job.service.submit(NodesLost(tuple(LostNode(node, "gone") for node in ("n0", "n1"))))
        loop = asyncio.get_running_loop()
        job.service.detach(job.links["n2"])
        then = loop.time() + 60.0
        monkeypatch.setattr(loop, "time", lambda: then)
        job.service._look_for_silence()
        assert job.machine.state.ended is not None and job.observed() == []

    run(scenario)
