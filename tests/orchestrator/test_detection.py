"""Evidence and what follows from it; detectors of other packages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from tests.core.core_job import Job
from tests.message_texts import arguments_of, has

from understudy import extensions
from understudy.core.events import Committed, Event, LostNode, MigrationAsked, NodesLost, NodeTainted, UsesDevice, WorkerLost
from understudy.core.model import JobSpec, LossCause
from understudy.core.state import BY_JOB, CHECK, CORRUPT
from understudy.detectors.base import GROUP, Detector, Evidence, JobView, Severity, Subject
from understudy.messages import policies, service_jobs
from understudy.messages.base import code_of
from understudy.orchestrator.detection import MOST, SHARE, TAINTS, OtherDetectors, Responses, observed
from understudy.policy.rules import default, parse

LIMIT = 30.0
HOT = Evidence("thermometer", Subject.NODE, "n0", Severity.SUSPECT, "91 degrees", 100.0)
DEAD = Evidence("pulse", Subject.WORKER, "w1", Severity.LOST, "no pulse", 100.0)
VIEW = JobView(100.0, {0: "w0", 1: "w1"}, ["w2"], {"w0": "n0", "w1": "n0", "w2": "n0"})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Detectors as if other packages had them."""

    def install(*kinds: type[Detector]) -> list[str]:
        monkeypatch.setattr(extensions, "classes", lambda group, base: list(kinds) if group == GROUP else [])
        return []

    yield install


def collect(others: OtherDetectors, enough: Callable[[list[Evidence]], bool]) -> list[Evidence]:
    found, ends = list[Evidence](), time.monotonic() + LIMIT
    turn = threading.Event()
    try:
        while not enough(found):
            assert time.monotonic() < ends, found
            found += others.look(VIEW)
            turn.wait(0.005)
    finally:
        others.close()
    return found


class Answered:
    """A job of two ranks on two nodes, with a spare on each, and what comes of evidence."""

    def __init__(self, text: str = "") -> None:
        self.job = Job(JobSpec("job", world_size=2, workers_per_node=1, nodes=2, spares=2))
        self.state = self.job.machine.state
        self.reported: list[str] = []
        self.responses = Responses(parse(text, "x.toml") if text else default(), self.reported.append)

    def sees(self, evidence: Evidence, now: float) -> Event | None:
        event = self.responses.event_of(evidence, self.state, now)
        if event is not None:
            self.job.machine.handle(event, now)
        return event

    def looks(self, now: float) -> Event | None:
        event = self.responses.look(self.state, now)
        if event is not None:
            self.job.machine.handle(event, now)
        return event


def test_evidence_becomes_an_event_once() -> None:
    job = Answered()
    worker = job.state.ranks[1]
    lost = Evidence("pulse", Subject.WORKER, worker, Severity.LOST, "no pulse", 100.0)
    why = policies.DECIDED(detail="no pulse", detector="pulse", rule="a worker that is lost")
    assert job.sees(lost, 101.0) == WorkerLost(worker, LossCause.HUNG, why, 100.0)
    assert job.sees(lost, 102.0) is None, "it is known"
    by = policies.DECIDED(detail="91 degrees", detector="thermometer", rule="a node or a part of it that is suspected")
    assert job.sees(HOT, 102.0) == NodeTainted("n0", by, "thermometer", "", 0.0, True, by=BY_JOB)
    assert job.sees(replace(HOT, happened=103.0, detail="92 degrees"), 103.0) is None, "it is known"
    assert job.sees(replace(DEAD, name="nobody"), 103.0) is None
    assert job.sees(replace(HOT, name="nowhere"), 103.0) is None
    assert job.sees(Evidence("hang", Subject.WORKER, job.state.ranks[0], Severity.LOST, "still", 9.0), 104.0) == WorkerLost(
        job.state.ranks[0], LossCause.HUNG, "still", 9.0
    )


@pytest.mark.parametrize(
    ("detector", "by"),
    [("thermometer", BY_JOB), ("straggler", BY_JOB), ("webhook:site", BY_JOB), ("alertmanager:GpuXid", BY_JOB), (CORRUPT, "")],
)
def test_what_follows_from_a_policy_concerns_the_job_only(detector: str, by: str) -> None:
    """A service hears by itself what concerns all jobs. And so does the check that follows. The findings of the core stay its own."""
    job = Answered('[[rule]]\nname = "all"\naction = "taint"')
    job.state.spec = replace(job.state.spec, admission=True)
    job.job.machine.handle(NodesLost((LostNode("n0", "gone"),)), 100.0)  # its rank is elsewhere, so it is checked
    job.job.machine.handle(NodeTainted("n0", "hot", detector, by=by), 101.0)
    assert [taint.by for taint in job.state.nodes["n0"].taints.values()] == [by]
    job.job.machine.handle(NodeTainted("n0", "", detector), 102.0)
    assert [(key, taint.by) for key, taint in job.state.nodes["n0"].taints.items()] == [(CHECK, by)]
    seen = job.sees(replace(HOT, name="n1", detector=detector), 103.0)
    assert isinstance(seen, NodeTainted) and seen.by == by


def test_a_policy_may_end_who_computes_on_a_device() -> None:
    """A device that is gone does not answer: its rank cannot send its state to a newcomer, as it would when it leaves."""
    job = Answered('[[rule]]\nname = "gone"\nkind = "xid-79"\nsubject = ["device"]\naction = "lost"')
    worker = job.state.ranks[1]
    node = job.state.workers[worker].node
    job.job.submit(UsesDevice(worker, "gpu1", ("GPU-5a",)))
    gone = Evidence("kernel", Subject.DEVICE, node, Severity.SUSPECT, "it fell off the bus", 100.0, "xid-79", "GPU-5a")
    why = policies.DECIDED(detail="it fell off the bus", detector="kernel", rule="gone")
    assert job.sees(gone, 101.0) == WorkerLost(worker, LossCause.DEVICE, why, 100.0)
    assert {taint.device for taint in job.state.nodes[node].device_taints.values()} == {"gpu1"}
    assert job.state.holder(1).name != worker
    again = job.sees(replace(gone, happened=102.0), 102.0)
    assert isinstance(again, NodeTainted) and again.part == "GPU-5a" and not again.leave, "no rank computes there any more"


def test_a_note_is_only_shown_and_reported_once() -> None:
    job = Answered()
    for _ in range(3):
        assert job.sees(Evidence("d", Subject.DEVICE, "n0", Severity.NOTE, "warm", 1.0, part="gpu0"), 5.0) is None
    (reported,) = job.reported
    assert has(reported, service_jobs.NOTED, about="gpu0 of node n0") and has(reported, policies.NO_RULE, detail="warm", detector="d")


def test_a_taint_s_end_is_put_off_when_it_is_worth_it() -> None:
    job = Answered()
    assert job.sees(replace(HOT, until=1100.0), 100.0) is not None
    assert job.sees(replace(HOT, until=1150.0), 150.0) is None, "by less than a tenth"
    later = job.sees(replace(HOT, until=1250.0), 250.0)
    assert isinstance(later, NodeTainted) and later.until == 1250.0 and later.leave
    endless = job.sees(HOT, 260.0)
    assert isinstance(endless, NodeTainted) and endless.until == 0.0


def test_what_a_limit_does_not_let_happen_now_is_a_taint_and_asked_again() -> None:
    job = Answered()
    first, second = job.sees(HOT, 100.0), job.sees(replace(HOT, name="n1"), 101.0)
    assert isinstance(first, NodeTainted) and first.leave
    assert isinstance(second, NodeTainted) and not second.leave
    (reported,) = job.reported
    assert has(reported, service_jobs.RANKS_STAY_ON_NODE, node="n1") and has(reported, policies.OTHERS_LEAVE, domains="n0", most=1)
    assert job.sees(replace(HOT, name="n1", happened=102.0), 102.0) is None and job.looks(103.0) is None
    assert len(job.reported) == 1, "reported once"
    job.job.machine.handle(NodeTainted("n0", ""), 104.0)
    now = job.looks(105.0)
    assert isinstance(now, NodeTainted) and (now.node, now.leave) == ("n1", True)
    assert job.looks(106.0) is None


def test_what_waits_and_is_taken_back_does_not_happen() -> None:
    job = Answered()
    job.sees(HOT, 100.0)
    job.sees(replace(HOT, name="n1"), 101.0)
    job.job.machine.handle(NodeTainted("n1", ""), 102.0)
    job.job.machine.handle(NodeTainted("n0", ""), 102.0)
    assert job.looks(103.0) is None


def test_what_is_over_ends_its_taint_with_the_last_of_what_was_seen_there() -> None:
    job = Answered()
    cable = replace(HOT, subject=Subject.LINK, part="eth0", kind="link-down")
    crc = replace(cable, kind="crc", until=400.0)
    assert job.sees(cable, 100.0) is not None
    assert job.sees(crc, 101.0) is None, "the first lasts longer"
    assert job.sees(replace(cable, kind="other", until=90.0), 102.0) is None, "of that nothing was known"
    assert job.sees(replace(cable, part="eth1", until=90.0), 102.0) is None
    shorter = job.sees(replace(cable, until=150.0), 150.0)
    assert isinstance(shorter, NodeTainted) and (shorter.until, shorter.leave, bool(shorter.reason)) == (400.0, True, True)
    gone = job.sees(replace(crc, until=160.0), 160.0)
    assert isinstance(gone, NodeTainted) and (gone.reason, gone.source, gone.part) == ("", "thermometer", "eth0")
    assert not job.state.nodes["n0"].taints
    assert job.sees(replace(crc, until=160.0), 161.0) is None


def test_what_is_over_lifts_no_other_taint() -> None:
    job = Answered()
    job.job.machine.handle(NodeTainted("n0", "a person's"), 99.0)
    job.sees(HOT, 100.0)
    job.sees(replace(HOT, subject=Subject.DEVICE, part="gpu0"), 100.0)
    job.sees(replace(HOT, until=120.0), 120.0)
    assert set(job.state.nodes["n0"].taints) == {("operator", ""), ("thermometer", "gpu0")}


def test_a_detector_that_names_parts_and_kinds_without_end_fills_nothing() -> None:
    job = Answered()
    for number in range(3 * TAINTS):
        job.sees(replace(HOT, subject=Subject.DEVICE, part=f"gpu{number}"), 100.0)
        job.sees(replace(HOT, kind=f"kind{number}"), 100.0)
    assert len(job.state.nodes["n0"].taints) == TAINTS // SHARE
    assert max(map(len, job.responses._ends.values())) <= TAINTS and len(job.responses._ends) <= TAINTS


def test_names_without_end_leave_room_for_what_others_see() -> None:
    """Of one webhook, whatever it calls itself: in taints and in lines for a person. What is known already still counts."""
    job = Answered()
    many = [replace(HOT, detector=f"webhook:{number}", part=f"gpu{number % 3}") for number in range(TAINTS)]
    events = [job.sees(one, 100.0) for one in many]
    assert [event is not None for event in events] == [number < TAINTS // SHARE for number in range(TAINTS)]
    assert job.sees(HOT, 101.0) is not None and job.sees(replace(many[-1], name="n1"), 101.0) is not None
    assert job.sees(replace(many[0], until=50.0), 102.0) is not None, "it is over"
    assert job.sees(many[-1], 103.0) is not None, "there is room"
    assert job.sees(replace(many[1], until=900.0), 103.0) is not None, "what is known may get another end"
    for number in range(TAINTS):
        job.sees(replace(HOT, detector=f"another{number}"), 103.6)
    assert len(job.state.nodes["n0"].taints) == TAINTS
    for number in range(MOST):
        job.sees(replace(HOT, detector="webhook:note", severity=Severity.NOTE, kind=f"kind{number}"), 104.0)
    assert sum("(webhook:" in line for line in job.reported) == MOST // SHARE
    job.sees(replace(HOT, severity=Severity.NOTE, detail="a fan is loud"), 105.0)
    assert "a fan is loud" in job.reported[-1]


def test_what_found_no_room_finds_none_in_the_journal() -> None:
    """A leader that comes next has not to keep more of it than the one before."""
    job = Answered()
    for number in range(TAINTS):
        seen = replace(HOT, detector="webhook:a", part=f"gpu{number}")
        job.responses.recall(observed(seen), job.state, 100.0)
        job.sees(seen, 100.0)
    assert len(job.responses._ends) == TAINTS // SHARE


def test_a_hold_goes_on_when_what_was_seen_is_over() -> None:
    job = Answered('[[rule]]\nname = "a"\naction = "leave"\nhold = "1h"')
    job.sees(HOT, 100.0)
    assert job.sees(replace(HOT, until=110.0), 110.0) is None
    assert job.state.nodes["n0"].taints


def test_the_rank_of_a_worker_that_is_to_be_left_moves_once() -> None:
    job = Answered('[[rule]]\nname = "slow"\nsubject = ["worker"]\naction = "leave"')
    for rank, worker in job.state.ranks.items():
        job.job.machine.handle(Committed(worker, 0, 0, 1), 90.0)
        assert job.state.holder(rank).committed == 0
    slow = Evidence("straggler", Subject.WORKER, job.state.ranks[1], Severity.SUSPECT, "slow", 100.0, "straggler")
    moved = job.sees(slow, 100.0)
    assert isinstance(moved, MigrationAsked) and moved.rank == 1 and "rule 'slow'" in moved.reason
    assert job.sees(replace(slow, happened=101.0), 101.0) is None, "it moves already"
    assert not any(node.taints for node in job.state.nodes.values())


def test_evidence_that_comes_and_goes_asks_once() -> None:
    job = Answered('[[rule]]\nname = "a"\naction = "leave"\nhold = "1h"')
    events = [job.sees(replace(HOT, happened=float(at)), float(at)) for at in range(100, 400, 7)]
    assert [event for event in events if event is not None] == [events[0]]


def test_what_was_seen_before_a_person_trusts_the_node_again_counts_no_more() -> None:
    job = Answered()
    assert job.sees(HOT, 101.0) is not None
    job.job.machine.handle(NodeTainted("n0", ""), 200.0)
    assert job.sees(HOT, 210.0) is None, "the agent repeats it"
    assert job.sees(replace(HOT, happened=200.0), 210.0) is None
    assert job.sees(replace(HOT, happened=201.0), 210.0) is not None, "it has happened again"
    job.job.machine.handle(NodeTainted("n0", "", "thermometer"), 300.0)
    assert job.sees(replace(HOT, happened=250.0), 310.0) is not None, "a detector's word is not a person's"


def test_what_others_find_is_taken_with_a_look_and_one_that_raises_speaks_against_itself_only(
    installed: Callable[..., list[str]],
) -> None:
    stuck = threading.Event()

    class Broken(Detector):
        name = "broken"

        def look(self, job: JobView) -> Iterable[Evidence]:
            raise OSError("no such sensor")

    class Liar(Detector):
        name = "liar"

        def look(self, job: JobView) -> Iterable[Evidence]:
            return [Evidence("liar", Subject.NODE, "n0", Severity.SUSPECT, "", float("nan"))]

    class Stuck(Detector):
        name = "stuck"

        def look(self, job: JobView) -> Iterable[Evidence]:
            stuck.wait()
            return ()

    class Thermometer(Detector):
        name, every = "thermometer", 0.0

        def look(self, job: JobView) -> Iterable[Evidence]:
            assert job.ranks == VIEW.ranks
            return [HOT, Evidence("thermometer", Subject.NODE, "n1", Severity.NOTE, "70 degrees", 100.0)]

    class Flood(Detector):
        name = "flood"

        def look(self, job: JobView) -> Iterable[Evidence]:
            while True:
                yield HOT

    installed(Broken, Liar, Stuck, Flood, Thermometer)
    reported: list[str] = []
    others = OtherDetectors(reported.append)
    found = collect(others, lambda found: found.count(HOT) > 2 and len(reported) > 2)
    stuck.set()
    assert {one.detector for one in found} == {"thermometer"}
    assert len(reported) == 3, "each thing once"
    left_out = {str(arguments_of(text)["detector"]).rpartition(".")[2]: text for text in reported}
    assert left_out.keys() == {"Broken", "Liar", "Flood"} and {code_of(text) for text in reported} == {service_jobs.DETECTOR_LEFT_OUT.code}
    assert "no such sensor" in left_out["Broken"] and has(left_out["Flood"], service_jobs.FLOOD, most=1000)


def test_a_detector_looks_no_faster_than_its_evidence_is_read_and_not_after_the_end(installed: Callable[..., list[str]]) -> None:
    looks: list[threading.Thread] = []

    class Eager(Detector):
        name, every = "eager", 0.0

        def look(self, job: JobView) -> Iterable[Evidence]:
            looks.append(threading.current_thread())
            return [replace(HOT, detail=str(len(looks)))]

    installed(Eager)
    others = OtherDetectors(pytest.fail)
    found, ends = list[Evidence](), time.monotonic() + LIMIT
    while len(found) < 100:
        assert time.monotonic() < ends
        found += others.look(VIEW)
        assert len(looks) <= len(found) + 2, "it looks ahead by one"
    assert [one.detail for one in found] == [str(number) for number in range(1, len(found) + 1)], "and nothing of it is lost"
    others.close()
    looks[0].join(LIMIT)
    assert not looks[0].is_alive()
