"""A job's scheduler as its orchestrator deals with it: turn by turn, on a made-up allocation and a machine of the test's own."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from dataclasses import replace

import pytest
from tests.core.core_job import Job
from tests.schedulers.made_up_allocation import MadeUp

from understudy.core import events
from understudy.core.model import JobSpec, LossCause
from understudy.detectors.base import Evidence, Severity
from understudy.messages import service_jobs
from understudy.orchestrator import scheduling
from understudy.orchestrator.scheduler_access import SchedulerAccess
from understudy.orchestrator.scheduling import Scheduling, story
from understudy.policy.rules import Back
from understudy.schedulers.base import TAKEN, ClaimedNode, NodeSeen, SchedulerAway, SchedulerFailed, Work

DOWN = NodeSeen("n2", "down*", "down", True, "down*: a bad DIMM (root)", 1000.0)
SPEC = JobSpec("job", 2, 1, nodes=2, spares=0)


class Around:
    """Everything that a `Scheduling` deals with. Five nodes: two with ranks, and two with a spare."""

    def __init__(self, spec: JobSpec = SPEC, back: Back | None = None, count: int = 5) -> None:
        self.allocation: MadeUp | None = MadeUp(count)
        self.job = Job(spec, spares={2: 1, 3: 1})
        self.observed: list[Evidence] = []
        self.dismissed: list[str] = []
        self.lines: list[str] = []
        self.submitted: list[events.Event] = []
        self.scheduling = self.new(back)

    def new(self, back: Back | None = None) -> Scheduling:
        """As a new leader has one."""
        access = SchedulerAccess(lambda: self.allocation, lambda number: Work(f"claim {number}", ("true",)))
        return Scheduling(access, back or Back(), self.observed.append, self._submit, self.dismissed.append, self.lines.append, lambda: 7)

    def _submit(self, event: events.Event) -> None:
        self.submitted.append(event)
        self.job.submit(event)

    def turn(self, times: int = 1) -> None:
        """And what it has begun."""

        for _ in range(times):
            self.scheduling.hurry(self.job.machine.state.claims)
            self.turn_ahead_of_the_journal()

    def turn_ahead_of_the_journal(self) -> None:
        """And what it has begun, which would be cancelled with its event loop."""

        async def turn() -> None:
            await self.scheduling._turn(self.job.machine.state)
            if self.scheduling._releasing is not None:
                await self.scheduling._releasing

        asyncio.run(turn())

    def finish(self) -> None:
        asyncio.run(self.scheduling.finish(self.job.machine.state))

    @property
    def made_up(self) -> MadeUp:
        assert self.allocation is not None
        return self.allocation

    def claims_ended(self) -> list[events.Event]:
        return [event for event in self.submitted if isinstance(event, events.ClaimEnded)]

    def sees(self, *seen: NodeSeen) -> None:
        self.made_up.seen.update({node.name: node for node in seen})

    def lose_node(self, *names: str) -> None:
        self.job.submit(events.NodesLost(tuple(events.LostNode(name, "silent") for name in names)))

    def leave(self, name: str, reason: str = "a bad DIMM") -> None:
        self.job.submit(events.NodeTainted(name, reason, "nvml", leave=True))


# -- evidence --------------------------------------------------------------------------------------------------------------------


def test_what_is_known_of_a_node_begins_changes_and_ends() -> None:
    around = Around()
    around.turn()
    assert around.observed == []
    around.sees(DOWN)
    around.turn(3)
    (first,) = around.observed
    assert (first.detector, first.name, first.severity, first.kind) == ("made up", "n2", Severity.SUSPECT, "down")
    assert (first.detail, first.happened, first.until) == (DOWN.reason, 1000.0, 0.0)
    around.sees(replace(DOWN, trouble="drain", reason="draining"))
    around.turn(2)
    ended, second = around.observed[1:]
    assert (ended.kind, ended.until > 0, second.kind, second.until) == ("down", True, "drain", 0.0)
    around.sees(NodeSeen("n2", "idle"))
    around.turn(2)
    (last,) = around.observed[3:]
    assert (last.kind, last.until > 0) == ("drain", True)


def test_a_node_s_place_is_reported_once_and_again_when_it_changes() -> None:
    around = Around()
    for labels in ((), (("nvlink-domain", "c1"),), (("nvlink-domain", "c1"),), (("nvlink-domain", "c2"),), ()):
        around.sees(NodeSeen("n0", "idle", labels=labels), NodeSeen("n77", "idle", labels=labels))
        around.turn(2)
    reported = [event for event in around.submitted if isinstance(event, events.NodeLabelled)]
    assert [(event.node, dict(event.labels).get("nvlink-domain", "")) for event in reported] == [("n0", "c1"), ("n0", "c2"), ("n0", "")]
    around.scheduling = around.new()
    around.turn()
    assert len(around.submitted) == 3, "a new leader has it from the journal"


def test_what_speaks_against_a_node_only_a_little_is_a_note_and_happens_now_at_the_latest() -> None:
    around = Around()
    around.sees(replace(DOWN, suspect=False, since=0.0), replace(DOWN, name="n3", since=time.time() + 1e6))
    around.turn()
    assert [one.severity for one in around.observed] == [Severity.NOTE, Severity.SUSPECT]
    assert all(abs(one.happened - time.time()) < 600 for one in around.observed)


def test_a_new_leader_repeats_valid_findings_and_ends_the_others() -> None:
    around = Around()
    around.sees(DOWN, replace(DOWN, name="n3"))
    around.turn()
    for one in around.observed:
        seen = events.Observed(one.detector, "node", one.name, "suspect", one.detail, one.happened, kind=one.kind)
        around.job.submit(seen)
    around.observed.clear()
    around.scheduling = around.new()
    around.sees(NodeSeen("n2", "idle"))
    around.turn()
    assert [(one.name, one.kind, one.until > 0) for one in around.observed] == [("n2", "down", True), ("n3", "down", False)]


# -- a scheduler that does not do what it was asked for --------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SchedulerFailed("no"), SchedulerAway("no")])
@pytest.mark.parametrize("call", ["look", "record", "claims", "claim", "give_back"])
def test_a_failure_is_reported_once_and_the_request_repeated(call: str, error: SchedulerFailed) -> None:
    around = Around(replace(SPEC, floating=2), Back(release=False))
    around.lose_node("n1")
    around.lose_node("n2")
    around.lose_node("n3")
    around.made_up.held[9] = ClaimedNode()
    around.made_up.fails[call] = error
    around.turn(3)
    if call == "claim" and type(error) is SchedulerFailed:
        assert events.ClaimEnded(0, "no") in around.submitted and around.lines == []
        return
    assert around.lines == [service_jobs.SCHEDULER_FAILS(reason="no")]
    del around.made_up.fails[call]
    around.turn(2)
    assert around.lines[1:] == [service_jobs.SCHEDULER_ANSWERS()] and len(around.made_up.calls(call)) > 0


def test_one_that_is_away_from_the_beginning_is_asked_again() -> None:
    around, asked = Around(), []

    def allocate() -> MadeUp:
        asked.append(1)
        if len(asked) < 3:
            raise SchedulerAway("no")
        return around.made_up

    around.scheduling._access = SchedulerAccess(allocate, around.scheduling._access.work)
    around.turn(5)
    assert len(asked) == 3 and len(around.lines) == 2 and len(around.made_up.calls("look")) == 3


def test_without_an_allocation_nothing_is_asked() -> None:
    around = Around()
    around.allocation = None
    around.turn(2)
    around.finish()
    assert not around.lines and not around.observed


def test_it_looks_again_when_it_is_to_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "LOOK", 600.0)
    around = Around()

    looks: queue.Queue[None] = queue.Queue()

    def look() -> tuple[NodeSeen, ...]:
        looks.put(None)
        return ()

    monkeypatch.setattr(around.made_up, "look", look)

    async def hurried() -> None:
        running = asyncio.create_task(around.scheduling.run(around.job.machine.state))
        await asyncio.to_thread(looks.get, timeout=60)
        around.scheduling.hurry(())
        await asyncio.to_thread(looks.get, timeout=60)
        running.cancel()

    asyncio.run(hurried())


# -- claims ----------------------------------------------------------------------------------------------------------------------


def floating(ranks: int = 4) -> Around:
    around = Around(JobSpec("job", ranks, 2, nodes=2, spares=0, floating=2))
    around.lose_node("n2", "n3")
    return around


def test_what_the_machine_wants_is_asked_for_once() -> None:
    around = floating()
    around.lose_node("n1")
    around.turn(3)
    assert around.made_up.calls("claim") == [("claim", 0, "n1", "n2", "n3")]
    assert around.made_up.calls("record_claim", "give_back") == []


def test_nothing_is_asked_for_that_the_journal_may_not_have() -> None:
    around = floating()
    around.turn()
    around.lose_node("n1")
    around.turn_ahead_of_the_journal()
    assert around.made_up.calls("claim") == [] and around.job.machine.state.claims.keys() == {0}
    around.turn()
    assert around.made_up.calls("claim") == [("claim", 0, "n1", "n2", "n3")]


def test_what_the_scheduler_has_beyond_that_is_given_back() -> None:
    around = floating()
    around.lose_node("n1")
    around.made_up.held.update({7: ClaimedNode(node="n9"), 8: ClaimedNode(True, "n8", "cancelled")})
    around.turn(2)
    assert around.made_up.calls("give_back") == [("give_back", 7)], "not what has ended"


def test_a_claim_that_is_refused_or_ends_is_over() -> None:
    around = floating()
    around.made_up.fails["claim"] = SchedulerFailed("there is no such partition")
    around.lose_node("n1")
    around.turn(2)
    assert around.claims_ended() == [events.ClaimEnded(0, "there is no such partition")]
    around = floating()
    around.lose_node("n1")
    around.turn()
    around.made_up.held[0] = ClaimedNode(True, "", "Slurm job 12 preempted")
    around.turn(2)
    assert around.claims_ended() == [events.ClaimEnded(0, "Slurm job 12 preempted")] and around.made_up.calls("give_back") == []


def test_what_becomes_of_a_claimed_node_is_recorded_there_when_it_changes() -> None:
    around = floating()
    around.lose_node("n1")
    around.turn()
    around.job.submit(events.NodeJoined("n9", "h9", 9, spares=2, claim=0))
    around.made_up.held[0] = ClaimedNode(False, node="n9")
    around.turn(2)
    assert around.made_up.calls("record_claim") == [("record_claim", 0, "made-up-7: no rank on n9")]
    around.job.warm()
    around.job.rest()
    around.job.verify()
    around.turn(2)
    assert around.made_up.calls("record_claim") == [("record_claim", 0, "made-up-7: ranks 2,3 on n9")]


def test_a_job_without_floating_spares_asks_for_no_claims() -> None:
    around = Around()
    around.made_up.fails["claims"] = SchedulerFailed("no")
    around.turn()
    around.finish()
    assert around.lines == []


# -- nodes that go back ----------------------------------------------------------------------------------------------------------


def test_a_node_that_ranks_have_left_is_given_back_and_its_agent_ends() -> None:
    around = Around()
    around.leave("n3")
    around.turn(3)
    assert around.made_up.calls("release", "drain") == [("release", "n3")]
    assert (around.submitted, around.dismissed) == ([events.NodeReleased("n3")], ["n3"])
    assert around.job.machine.state.nodes["n3"].gone


@pytest.mark.parametrize("name", ["n0", "n2"])
def test_a_node_with_a_rank_or_an_orchestrator_stays(name: str) -> None:
    """The first three have an orchestrator."""
    around = Around(JobSpec("job", 1, 1, nodes=1, spares=0))
    around.leave(name)
    around.turn()
    assert around.made_up.calls("release") == [] and around.submitted == []


@pytest.mark.parametrize(("taken", "released"), [(False, []), (True, [("release", "n2")])])
def test_one_with_an_orchestrator_goes_if_the_scheduler_has_taken_it(taken: bool, released: list[tuple[str, str]]) -> None:
    around = Around()
    around.leave("n2")
    around.sees(NodeSeen("n2", "idle", TAKEN if taken else "", taken))
    around.turn()
    assert around.made_up.calls("release") == released


def test_a_lost_node_goes_even_with_an_orchestrator_and_no_agent_is_dismissed() -> None:
    around = Around()
    around.lose_node("n2")
    around.turn(2)
    assert around.made_up.calls("release") == [("release", "n2")]
    assert (around.submitted, around.dismissed) == ([events.NodeReleased("n2")], [])


def test_a_lost_one_that_cannot_be_given_back_may_come_back() -> None:
    around = Around()
    around.made_up.cannot = {"n3"}
    around.lose_node("n3")
    around.turn(2)
    assert around.made_up.calls("release") == [("release", "n3")] and around.submitted == [], "it is tried again later"
    assert not around.job.machine.state.nodes["n3"].gone


@pytest.mark.parametrize("lost", [False, True])
def test_one_that_could_not_be_given_back_is_tried_again_until_it_is(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    around = Around()
    around.made_up.fails["release"] = SchedulerFailed("no")
    around.lose_node("n3") if lost else around.leave("n3")
    around.turn(3)
    assert around.lines == [service_jobs.NOT_GIVEN_BACK(nodes="n3", reason="no")]
    monkeypatch.setattr(scheduling, "AGAIN", 0.0)
    around.turn()
    del around.made_up.fails["release"]
    around.turn(3)
    assert around.made_up.calls("release") == [("release", "n3")] and len(around.lines) == 2
    assert around.submitted == [events.NodeReleased("n3")] and around.job.machine.state.nodes["n3"].gone


@pytest.mark.parametrize(("spec", "back"), [(replace(SPEC, home_after=600.0), Back()), (SPEC, Back(release=False))])
def test_none_goes_where_ranks_go_home_or_the_policy_keeps_them(spec: JobSpec, back: Back) -> None:
    around = Around(spec, back)
    around.leave("n3")
    around.lose_node("n2")
    around.turn()
    assert around.made_up.calls("release") == [] and around.submitted == []


def test_a_policy_may_have_them_drained() -> None:
    around = Around(back=Back(drain=True))
    around.leave("n3")
    around.lose_node("n2")
    around.turn()
    assert around.made_up.calls("drain") == [("drain", "n2", "n3", "understudy: made-up-7: it is lost; a bad DIMM")]


def test_a_drain_that_is_refused_does_not_undo_that_the_node_was_given_back() -> None:
    around = Around(back=Back(drain=True))
    around.made_up.fails["drain"] = SchedulerFailed("Invalid user id")
    around.lose_node("n2")
    around.turn(2)
    assert around.lines == [service_jobs.NOT_DRAINED(nodes="n2", reason="Invalid user id")]
    assert around.submitted == [events.NodeReleased("n2")]


# -- summary of the job ----------------------------------------------------------------------------------------------------------


def test_what_has_become_of_the_job_is_recorded_when_it_changes() -> None:
    around = Around()
    around.turn(2)
    assert around.made_up.calls("record") == []
    around.lose_node("n1")
    around.turn(2)
    assert around.made_up.calls("record") == [("record", story(around.job.machine.state))]


def test_a_job_that_nothing_has_happened_to_has_no_story() -> None:
    assert story(Job(SPEC).machine.state) == "" and story(Job(SPEC, forming=True).machine.state) == ""


def test_the_story_of_a_rank_that_has_moved() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=0), spares={2: 2})
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    assert story(job.machine.state) == "ranks 2,3 of n1 on n2; lost n1; 0 incidents"
    job.rest()
    job.verify()
    job.commit(1)
    assert story(job.machine.state) == "ranks 2,3 of n1 on n2; lost n1; 1 incident"
    job.submit(events.StopAsked("enough", 3))
    assert story(job.machine.state) == "ranks 2,3 of n1 on n2; lost n1; 1 incident; ended with exit code 3"


def test_the_story_of_nodes_that_were_left() -> None:
    job = Job(SPEC, spares={2: 1, 3: 1})
    for name in ("n2", "n3"):
        job.submit(events.NodeTainted(name, "loud", "nvml", leave=True))
    job.submit(events.NodeReleased("n2"))
    assert story(job.machine.state) == "left n2, n3; 0 incidents"
    job.lose("w0")
    assert story(job.machine.state) == "rank 0 of n0 on n3; left n2; 0 incidents", "the job has no other spare"


# -- the end ---------------------------------------------------------------------------------------------------------------------


def test_the_end_does_not_wait_for_lost_nodes() -> None:
    """Those that are there end by themselves, and some take their time."""
    around = Around(count=3)
    around.turn()
    around.finish()
    assert around.made_up.calls("record", "finish") == [("finish",)]
    around.lose_node("n1")
    around.finish()
    assert around.made_up.calls("record", "finish") == [("record", story(around.job.machine.state)), ("finish", "n1")]


def test_at_the_end_what_is_claimed_is_given_back() -> None:
    around = floating()
    around.turn()
    around.made_up.held = {1: ClaimedNode(), 2: ClaimedNode(node="n8"), 3: ClaimedNode(node="n1"), 4: ClaimedNode(True)}
    around.finish()
    assert around.made_up.calls("give_back") == [("give_back", 1), ("give_back", 2)], "n1 is there, and ends by itself"


@pytest.mark.parametrize(("error", "reason"), [(SchedulerFailed("no"), "no"), (TimeoutError(), "it does not answer")])
def test_a_scheduler_that_fails_at_the_end_is_reported(error: Exception, reason: str) -> None:
    around = Around()
    around.turn()
    around.made_up.fails["finish"] = error
    around.finish()
    assert around.lines == [service_jobs.SCHEDULER_NOT_NOTIFIED(reason=reason)]


def test_an_end_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "FINISHING", 0.05)
    around = Around()
    around.turn()
    reported = threading.Event()

    def tell(text: str) -> None:
        around.lines.append(text)
        reported.set()

    monkeypatch.setattr(around.made_up, "finish", lambda missing: reported.wait(60))
    monkeypatch.setattr(around.scheduling, "_tell", tell)
    around.finish()
    assert around.lines == [service_jobs.SCHEDULER_NOT_NOTIFIED(reason="it does not answer")]


def test_a_loss_that_is_none_of_the_scheduler_s_is_no_evidence() -> None:
    around = Around()
    around.turn()
    around.job.submit(events.WorkerLost("w0", LossCause.KILLED, "signal 9", 1.0))
    around.turn()
    assert around.observed == [] and around.made_up.calls("release") == []
