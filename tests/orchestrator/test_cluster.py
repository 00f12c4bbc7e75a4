"""What the nodes of a service are suspected of: no job is placed there while it holds, until a person overrides it."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import ValidationError
from tests.core.core_job import Job
from tests.message_texts import has

from understudy.common.names import JOURNAL
from understudy.core import placement
from understudy.core.events import Event, LostNode, NodeJoined, NodesLost, NodeTainted, StopAsked
from understudy.core.model import JobSpec, Timeouts
from understudy.core.placement import Offer, place
from understudy.core.state import BY_JOB, BY_SERVICE, CHECK, CORRUPT, OPERATOR
from understudy.detectors.base import LEFT_OUT, Evidence, Severity, Subject
from understudy.links.messages import EndPart, Hello, Part, Seen, StartPart, decode, encode
from understudy.links.submission import Submission
from understudy.messages import http_requests, service_jobs, wire
from understudy.orchestrator import cluster as module
from understudy.orchestrator import marks, queue
from understudy.orchestrator.agent_link import TRY_LATER, AgentLink, Close
from understudy.orchestrator.chain import Position
from understudy.orchestrator.cluster import LATE, Cluster
from understudy.orchestrator.detection import Responses
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.journal import Journal, read
from understudy.orchestrator.marks import NodeMarks
from understudy.orchestrator.nodes import Node
from understudy.orchestrator.rows import Recorded
from understudy.orchestrator.security import Access
from understudy.orchestrator.settings import Settings
from understudy.policy.rules import default, parse


@pytest.fixture(autouse=True)
def without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a placement took: each change causes another one, because these tests run no checks in between."""
    monkeypatch.setattr(module, "REST", 0.0)


HOT = Evidence("thermometer", Subject.NODE, "n0", Severity.SUSPECT, "91 degrees", 100.0)


def test_a_person_s_decision_outlives_what_an_agent_repeats(tmp_path: Path) -> None:
    job = Job(JobSpec("job", world_size=2, workers_per_node=1, nodes=2, spares=2))
    served = SimpleNamespace(service=SimpleNamespace(machine=job.machine, submit=lambda event: job.machine.handle(event, 200.0)))
    served.running = SimpleNamespace(done=lambda: False)
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
        job.machine.handle(NodeTainted("n0", "", by=BY_JOB), 200.0)
        assert cluster.taint("n0") == "91 degrees (thermometer)", "of a job's operator it concerns that job"
        cluster.trust("n0")
        cluster.observe(HOT)
        assert cluster.taint("n0") == ""
        cluster.observe(replace(HOT, happened=time.time() + 1.0))
        assert cluster.taint("n0") == "91 degrees (thermometer)"
        assert len(observed) == 6, "each job decides for itself"

    asyncio.run(scenario())


def test_a_job_s_policy_takes_no_node_from_the_others(tmp_path: Path) -> None:
    """Nor does what an earlier version has set because of a detector. What the core has found counts, also after the job's end; a check
    that the job's end has left open does not.
    """
    job = Job(JobSpec("job", world_size=2, workers_per_node=1, nodes=2, spares=2))
    served = SimpleNamespace(service=SimpleNamespace(machine=job.machine))
    jobs = SimpleNamespace(all=lambda: [served], observe=lambda evidence, may: [], aside={})

    async def scenario() -> None:
        cluster = Cluster(cast(Jobs, jobs), tmp_path, Access(["secret"]), lambda text: None, Timeouts())

        def counts(*, of: str, source: str, by: str = "") -> bool:
            job.machine.handle(NodeTainted("n0", of, source, by=by), 200.0)
            found = cluster.taint("n0")
            job.machine.handle(NodeTainted("n0", "", source), 201.0)
            assert not cluster.taint("n0")
            return found == of

        policy = parse('[[rule]]\nname = "slow"\nkind = "straggler"\naction = "taint"', "x.toml")
        slow = Evidence("straggler", Subject.NODE, "n0", Severity.SUSPECT, "slow on purpose", 100.0, "straggler")
        event = Responses(policy, lambda text: None).event_of(slow, job.machine.state, 150.0)
        assert isinstance(event, NodeTainted)
        assert not counts(of="slow", source="straggler", by=event.by)
        assert not counts(of="hot", source="of an earlier version")
        assert counts(of="differs", source=CORRUPT) and counts(of="to be checked", source=CHECK[0])
        assert counts(of="loud", source=OPERATOR, by=BY_SERVICE) and not counts(of="loud", source=OPERATOR, by=BY_JOB)
        job.machine.handle(StopAsked("enough", 0), 202.0)
        assert job.machine.state.ended is not None
        assert counts(of="differs", source=CORRUPT) and not counts(of="to be checked", source=CHECK[0])

    asyncio.run(scenario())


def test_a_part_on_a_node_that_is_back_is_started_once(tmp_path: Path) -> None:
    """Until it has introduced itself, which takes it seconds, a look at the nodes asks for nothing more."""
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


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Jobs wait, of so many ranks each on one node, for nodes of 8 slots. Gives those that wait still, and for what."""
    monkeypatch.setattr(module, "SETTLE", 0.0)
    new = SimpleNamespace(service=SimpleNamespace(machine=SimpleNamespace(state=SimpleNamespace(nodes={}))))
    jobs = SimpleNamespace(all=list, get=lambda name: new, aside={})

    def wait(nodes: str, ranks: dict[str, int], long: Sequence[str] = ()) -> dict[str, str]:
        async def scenario() -> dict[str, str]:
            cluster = Cluster(cast(Jobs, jobs), tmp_path, Access(["secret"]), lambda text: None, Timeouts())
            for name in nodes:
                cluster.attach(Hello(name, "here", 8, "", {}, ()))
            for name, count in ranks.items():
                cluster._requests[name] = Submission(name=name, program=["train.py"], folder="/", workers_per_node=count, spares=0)
                cluster.waiting[name] = ""
                if name in long:
                    cluster._since[name] = asyncio.get_running_loop().time() - queue.PATIENCE
                cluster._place()
            return cluster.waiting

        return asyncio.run(scenario())

    return wait


def test_a_job_that_does_not_fit_yet_is_passed_by_smaller_ones(waiting: Callable[..., dict[str, str]]) -> None:
    """Also one that no nodes could hold."""
    assert list(waiting("a", {"huge": 9, "six": 6, "four": 4, "one": 1, "two": 2})) == ["huge", "four", "two"]


def test_nodes_are_kept_for_a_job_that_has_waited_for_long(waiting: Callable[..., dict[str, str]]) -> None:
    """Not those that it does not need, and none for a job that no nodes could hold."""
    left = waiting("a", {"six": 6, "four": 4, "one": 1}, long=["four"])
    assert has(left.pop("four"), service_jobs.WAITS_FOR_SLOTS) and has(left.pop("one"), service_jobs.WAITS_FOR_OTHERS, jobs="four")
    assert left == {}
    assert list(waiting("ab", {"six": 6, "seven": 7, "four": 4, "one": 1, "another": 1}, long=["four"])) == ["four", "another"]
    assert list(waiting("a", {"six": 6, "huge": 9, "one": 1}, long=["huge"])) == ["huge"]


def test_sums_refuse_what_placing_would_and_nothing_else() -> None:
    """Also after jobs were placed in the same look, of which the nodes themselves are not asked again."""
    for seed in range(300):
        chance = random.Random(seed)
        sizes = {f"n{number}": chance.randint(0, 8) for number in range(chance.randint(0, 8))}
        free = dict(sizes)
        waiting = queue.Queue([Node(Hello(name, "here", size, name[-1:], {}, ()), None, 0.0) for name, size in sizes.items()])
        for number in range(8):
            nodes, ranks = chance.randint(1, 4), chance.randint(1, 4)
            spec = JobSpec(f"job{number}", nodes * ranks, ranks, nodes, spares=chance.randint(0, 3))
            found, wanted = waiting.place(spec, 0.0), place(spec, [Offer(name, name[-1:], slots) for name, slots in free.items()])
            assert isinstance(found, str) == isinstance(wanted, str)
            if not isinstance(found, str):
                assert found == wanted
                for part in found:
                    free[part.node] -= part.spares + ranks * (part.rank < nodes)


def test_a_look_sorts_nodes_only_for_what_is_placed_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(spec: JobSpec, offers: Sequence[Offer]) -> list[placement.Part] | str:
        asked.append(spec.job)
        return place(spec, offers)

    monkeypatch.setattr(queue, "place", counted)
    waiting = queue.Queue([Node(Hello(f"n{number}", "here", 8, "", {}, ()), None, 0.0) for number in range(4)])
    for number in range(5, 50):
        assert isinstance(waiting.place(JobSpec(f"large{number}", number, 1, number, spares=0), 0.0), str)
    assert isinstance(waiting.place(JobSpec("fits", 4, 1, 4, spares=0), 0.0), list)
    assert asked == ["fits"]


def test_many_jobs_that_fit_are_placed_in_several_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents and other jobs are served in between; and a node that connects then causes no separate check."""
    monkeypatch.setattr(module, "SETTLE", 0.0)
    monkeypatch.setattr(module, "PLACING", 0.0)
    monkeypatch.setattr(module, "REST", 1e9)
    waits = SimpleNamespace(service=SimpleNamespace(machine=SimpleNamespace(state=SimpleNamespace(nodes={}))))
    jobs = SimpleNamespace(all=list, get=lambda name: waits, aside={})

    async def scenario() -> None:
        cluster = Cluster(cast(Jobs, jobs), tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        cluster.attach(Hello("n0", "here", 8, "", {}, ()))
        for number in range(3):
            cluster._requests[f"job{number}"] = Submission(name=f"job{number}", program=["train.py"], folder="/", spares=0)
            cluster.waiting[f"job{number}"] = ""
        cluster._place()
        assert list(cluster.waiting) == ["job1", "job2"]
        cluster.attach(Hello("n1", "here", 8, "", {}, ()))
        assert list(cluster.waiting) == ["job1", "job2"]
        cluster._place()
        assert list(cluster.waiting) == ["job2"]

    asyncio.run(scenario())


def test_nodes_that_do_not_come_any_more_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that have something of a job; and of too many, those first of which nothing was heard for longest."""
    monkeypatch.setattr(module, "NODES", 4)
    running = SimpleNamespace(done=lambda: False)
    jobs = SimpleNamespace(all=list, get=lambda name: SimpleNamespace(running=running) if name == "goes on" else None, aside={})

    async def scenario() -> None:
        cluster = Cluster(cast(Jobs, jobs), tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        now = asyncio.get_running_loop().time()

        def come(name: str, *parts: Part) -> AgentLink:
            return cluster.attach(Hello(name, "here", 1, "", {}, parts))

        def goes(name: str, seconds: float, *parts: Part) -> None:
            cluster.detach(come(name, *parts))
            cluster.nodes[name].heard = now - seconds

        come("here").heard = 0.0
        goes("with a part", module.FORGET + 1, Part("goes on", 0, 1, 0))
        goes("of old", module.FORGET + 1, Part("over", 0, 1, 0))
        goes("lately", 60.0)
        cluster._forget(now)
        assert list(cluster.nodes) == ["here", "with a part", "lately"]
        come("fourth")
        come("fifth")
        assert list(cluster.nodes) == ["here", "with a part", "fourth", "fifth"], "one that was away has made room"
        closed = come("sixth").outbox.get_nowait()
        assert isinstance(closed, Close) and closed.code == TRY_LATER and has(closed.reason, http_requests.TOO_MANY_NODES, most=4)
        assert len(cluster.nodes) == 4

    asyncio.run(scenario())


def test_of_what_was_seen_not_much_is_kept_of_each() -> None:
    node = Node(Hello("n0", "here", 1, "", {}, ()), None, 0.0)
    node.suspect(replace(HOT, detail="x" * 100_000), 200.0)
    assert len(node.doubt(200.0)) < 1100


def test_marks_that_people_set_on_nodes_are_kept(tmp_path: Path) -> None:
    """Also what an earlier version has kept."""
    reported: list[str] = []
    (tmp_path / marks.EARLIER).write_text('{"n0": "drained: of old"}')
    kept = NodeMarks(tmp_path, reported.append)
    assert kept.is_drained("n0") and kept.why("n0") == "drained: of old"
    kept.undrain("n0")
    kept.taint("n1", "loud")
    kept.drain("n2", "a new kernel")
    kept.trust("n2", 300.0)
    again = NodeMarks(tmp_path, reported.append)
    assert [again.why(f"n{number}") for number in range(3)] == ["", service_jobs.NODE_TAINTED(reason="loud"), ""]
    assert again.trusted_at("n2") == 300.0 and not reported
    (tmp_path / marks.FILE).write_text('{"drained": 7}')
    kept = NodeMarks(tmp_path, reported.append)
    assert not kept.why("n1") and has(reported[0], service_jobs.MARKS_UNREADABLE)
    kept.drain("n3", "the next word")
    assert (tmp_path / f"{marks.FILE}.damaged-1").read_text() == '{"drained": 7}'
    assert not NodeMarks(tmp_path, reported.append).why("n0"), "what an earlier version has left is of old"
    assert len(reported) == 1


def test_operators_marks_and_waiting_times_outlive_a_restart(tmp_path: Path) -> None:
    """Also where no earlier version has kept whom people trusted: the jobs' events show it, not those by one job's operators."""

    def recorded(name: str, *reported: Event) -> Recorded:
        spec = JobSpec(name, world_size=2, workers_per_node=1, nodes=2, spares=0)
        request = Submission(name=name, program=["train.py"], folder="/", nodes=2, spares=0)
        joined = [NodeJoined(f"n{number}", "here", number) for number in range(2 * bool(reported))]
        return Recorded(
            Settings(spec), request.model_dump_json(), [(100.0, event) for event in joined] + [(150.0, e) for e in reported], {}
        )

    waits = tmp_path / "jobs" / "waits"
    waits.mkdir(parents=True)
    (waits / module.ENVIRONMENT).write_text("{}")
    os.utime(waits / module.ENVIRONMENT, (time.time() - 10_000.0,) * 2)
    over = recorded("over", NodeTainted("n0", ""), NodeTainted("n1", "", by=BY_JOB), StopAsked("enough", 0))

    async def scenario() -> None:
        journal = Journal(tmp_path / JOURNAL, lambda text: None)
        journal.start()
        jobs = Jobs(journal, lambda text: None)
        cluster = Cluster(jobs, tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        try:
            cluster.resume({"over": over, "waits": recorded("waits")})
            for name in ("n0", "n1"):
                cluster.attach(Hello(name, "here", 1, "", {}, ()))
                cluster.observe(replace(HOT, name=name, happened=120.0))
            assert not cluster.taint("n0") and cluster.taint("n1")
            cluster.observe(replace(HOT, happened=160.0))
            assert cluster.taint("n0")
            assert asyncio.get_running_loop().time() - cluster._since["waits"] > queue.PATIENCE
            assert NodeMarks(tmp_path, lambda text: None).trusted_at("n0") == 150.0
        finally:
            for job in jobs.all():
                job.running.cancel()
            await asyncio.gather(*(job.running for job in jobs.all()), return_exceptions=True)
            journal.close()

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


def started(link: AgentLink) -> list[str]:
    """The jobs of which the node was given a part."""
    found = []
    while not link.outbox.empty():
        message = decode(str(link.outbox.get_nowait()))
        found += [message.part.job] if isinstance(message, StartPart) else []
    return found


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60.0):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_job_is_placed_once_the_journal_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an orchestrator that is started again would not know whose parts the nodes have."""
    monkeypatch.setattr(module, "SETTLE", 0.0)

    async def scenario() -> None:
        journal = Journal(tmp_path / JOURNAL, pytest.fail)
        jobs = Jobs(journal, lambda text: None)
        cluster = Cluster(jobs, tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        link = cluster.attach(Hello("n0", "here", 8, "", {}, ()))
        for name in ("job", "stopped"):
            cluster.submit(Submission(name=name, program=["train.py"], folder="/", spares=0), default())
        cluster._place()
        assert started(link) == [] and list(cluster.waiting) == ["job", "stopped"]
        stopped = jobs.get("stopped")
        assert stopped is not None
        cluster.stop(stopped, "not wanted", 1)
        journal.start()
        await until(lambda: not cluster.waiting and "stopped" in cluster._requests)
        assert started(link) == ["job"] and read(tmp_path / JOURNAL, "job") is not None
        for job in jobs.all():
            job.running.cancel()
        journal.close(60.0)

    asyncio.run(scenario())


def test_a_job_that_waits_and_is_put_aside_is_not_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one whose nodes have come by themselves."""
    monkeypatch.setattr(module, "SETTLE", 0.0)

    async def scenario() -> None:
        journal = Journal(tmp_path / JOURNAL, pytest.fail)
        journal.start()
        jobs = Jobs(journal, lambda text: None)
        cluster = Cluster(jobs, tmp_path, Access(["secret"]), lambda text: None, Timeouts())
        for name in ("aside", "there", "new"):
            cluster.submit(Submission(name=name, program=["train.py"], folder="/", spares=0), default())
        await until(lambda: len(cluster._requests) == 3)
        aside, there = jobs.get("aside"), jobs.get("there")
        assert aside is not None and there is not None and list(cluster.waiting) == ["aside", "there", "new"]
        joined = NodeJoined("n1", "there", 0)
        assert not jobs.admit(aside, joined, Position(9, "0123456789abcdef"))
        there.service.attach(joined)
        assert started(cluster.attach(Hello("n0", "here", 8, "", {}, ()))) == ["new"] and not cluster.waiting
        cluster.waiting["aside"] = ""
        cluster.end_parts("aside")
        assert not cluster.waiting
        for job in jobs.all():
            job.running.cancel()
        journal.close(60.0)

    asyncio.run(scenario())
