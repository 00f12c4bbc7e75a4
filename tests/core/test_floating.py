"""Floating spares: one question at a time. How the pieces work together is in tests/scenarios/claimed_*.txt and in the model."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.core_job import Job, of
from tests.message_texts import refused

from understudy.core import commands, drain, events, floating
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Timeouts
from understudy.core.state import Claim, JobState
from understudy.core.transitions import Phase
from understudy.links.messages import BadMessage, decode, encode
from understudy.messages import forming, losses
from understudy.orchestrator.claims_view import floating_spares


def spec(ranks: int = 4, nodes: int = 2, spares: int = 0, floats: int = 2, **more: Any) -> JobSpec:
    return JobSpec("job", ranks, ranks // nodes, nodes, spares, floating=floats, **more)


def lose_node(job: Job, *names: str) -> list[commands.Command]:
    return job.submit(events.NodesLost(tuple(events.LostNode(name, "silent") for name in names)))


def joins(job: Job, claim: int, name: str = "n7", rank: int = 7, spares: int = 2) -> list[commands.Command]:
    return job.submit(events.NodeJoined(name, "h7", rank, spares=spares, claim=claim))


def leave(job: Job, node: str, reason: str = "loud") -> list[commands.Command]:
    return job.submit(events.NodeTainted(node, reason, "nvml", leave=True))


def test_a_node_that_dies_with_all_its_ranks_asks_for_one_node() -> None:
    (claim,) = of(commands.ClaimNode, lose_node(Job(spec()), "n1"))
    assert (claim.claim, claim.rank, claim.avoid) == (0, 2, ("n1",))


@pytest.mark.parametrize(("floats", "asked"), [(0, 0), (1, 1), (2, 2), (5, 2)])
def test_never_more_than_may_be_claimed(floats: int, asked: int) -> None:
    assert len(of(commands.ClaimNode, lose_node(Job(spec(6, 3, floats=floats)), "n1", "n2"))) == asked


def test_a_spare_of_the_jobs_own_goes_first() -> None:
    job = Job(spec(spares=2))
    said = job.lose("w0")
    assert of(commands.Assign, said) and not of(commands.ClaimNode, said)


def test_a_spare_that_warms_is_waited_for_and_nothing_is_claimed() -> None:
    job = Job(spec(2, 1, spares=1))
    job.lose("w2")
    assert not of(commands.ClaimNode, job.lose("w1")) and "hold" in job.machine.state.timers


def test_a_spare_on_a_tainted_node_counts_for_a_vacant_rank_and_not_for_one_that_leaves() -> None:
    job = Job(spec(spares=2))
    job.submit(events.NodeTainted("n1", "loud"))
    assert of(commands.ClaimNode, leave(job, "n0")), "the only other spare is on n1"
    job = Job(spec(spares=2, replenish=False))
    job.submit(events.NodeTainted("n0", "loud"))
    job.submit(events.NodeTainted("n1", "loud"))
    assert not of(commands.ClaimNode, job.lose("w0"))


def test_nothing_is_claimed_while_the_job_forms() -> None:
    job = Job(spec(), forming=True)
    job.submit(events.NodeTainted("n0", "loud", "nvml", leave=True))
    assert not job.machine.state.claims


def test_spares_on_a_claimed_node_are_no_more_than_it_has_offered() -> None:
    """Also where spares are replaced; and they are not prepared, and not drilled."""
    job = Job(JobSpec("job", 4, 2, 2, 1, prepared=1, floating=1), spares={0: 0, 1: 0})
    lose_node(job, "n1")
    assert len(of(commands.StartWorker, joins(job, 0))) == 2
    said = job.warm() + job.rest() + job.verify() + job.commit(1)
    assert not [start for start in of(commands.StartWorker, said) if start.node == "n7"]
    assert len(job.machine.state.nodes["n7"].workers) == 2


def test_a_claimed_spare_is_not_drilled() -> None:
    job = Job(spec(floats=1))
    leave(job, "n0")
    joins(job, 0)
    assert job.machine.drill_refusal(2)


def test_a_drain_is_not_refused_where_a_node_may_be_claimed() -> None:
    assert drain.plan(Job(spec(floats=0)).machine.state, ["n0"]).refused
    job = Job(spec(floats=1))
    assert not drain.plan(job.machine.state, ["n0"]).refused
    lose_node(job, "n1")
    joins(job, 0)
    job.warm(), job.rest(), job.verify(), job.commit(1)
    assert drain.plan(job.machine.state, ["n0"]).refused, "the only one that may be is claimed, and full"


def test_what_the_scheduler_should_know() -> None:
    job = Job(spec(6, 3))
    lose_node(job, "n1", "n2")
    joins(job, 0)
    found = floating.open_claims(job.machine.state)
    assert [(one.number, one.rank, one.node, one.avoid) for one in found] == [(0, 2, "n7", ("n1", "n2")), (1, 4, "", ("n1", "n2"))]
    shown = floating_spares(job.machine.state)
    assert [(one["claim"], one["node"]) for one in shown["claims"]] == [(0, "n7"), (1, None)] and shown["most"] == 2


@pytest.mark.parametrize("number", [1, 99, 10**18, -7])
def test_an_unknown_claim_changes_little(number: int) -> None:
    job = Job(spec())
    before = len(job.machine.state.nodes)
    said = joins(job, number, spares=-1)
    assert len(job.machine.state.nodes) == before and not of(commands.StartWorker, said)
    assert [back.claim for back in of(commands.GiveBackNode, said)] == ([number] if number >= 0 else [])
    assert job.machine.state.claimed <= 100, "hostile numbers are not counted on from"


def test_a_stranger_ends_no_worker_on_a_node_whose_name_it_takes() -> None:
    job = Job(spec())
    said = job.submit(events.NodeJoined("n0", "evil", 9, spares=2, workers=(), claim=3))
    assert not of(commands.KillWorker, said) and job.machine.state.nodes["n0"].address == "h0"


def test_given_back_before_the_job_ends() -> None:
    job = Job(spec())
    lose_node(job, "n1")
    *_, back, end = job.submit(events.StopAsked("enough", 3))
    assert (back, end) == (commands.GiveBackNode(0, ""), commands.EndJob(3, losses.STOPPED(reason="enough")))
    assert job.machine.state.phase is Phase.ENDED and not job.submit(events.ClaimEnded(0, "cancelled"))


def test_a_claim_that_fails_is_asked_for_again_only_after_the_pause() -> None:
    job = Job(spec())
    leave(job, "n0")
    said = job.submit(events.ClaimEnded(0, "no node is free"))
    assert commands.SetTimer(floating.TIMER, floating.PAUSE) in said and not of(commands.ClaimNode, said)
    (again,) = of(commands.ClaimNode, job.submit(events.Expired(floating.TIMER)))
    assert again.claim == 1


def test_the_pause_ends_with_the_need() -> None:
    job = Job(spec())
    leave(job, "n0")
    job.submit(events.ClaimEnded(0, "no node is free"))
    leave(job, "n0", "")
    assert floating.TIMER not in job.machine.state.timers


def test_a_rank_whose_move_has_failed_twice_stays_on_its_claimed_node() -> None:
    job = Job(spec(2, 2, floats=1))
    lose_node(job, "n1")
    joins(job, 0, spares=1)
    job.warm(), job.rest(), job.verify(), job.commit(1)
    job.submit(events.NodeJoined("n2", "h2", 2, spares=1))
    for _ in range(3):
        job.warm()
        if job.machine.state.migration is not None:
            job.lose(job.machine.state.migration.moves[0].newcomer)
    job.warm()
    assert job.machine.state.migration is None and floating.open_claims(job.machine.state)


def test_old_journals_and_messages_are_read() -> None:
    old = decode('{"type":"NodeJoined","node":"n0","address":"h","node_rank":0,"domain":"","spares":-1,"workers":null}')
    assert isinstance(old, events.NodeJoined) and old.claim == -1
    for message in (events.NodeJoined("n0", "h", 2, claim=3), events.ClaimEnded(3, "preempted"), commands.ClaimNode(3, 0, "why", ("n1",))):
        assert decode(encode(message)) == message
    with pytest.raises(BadMessage):
        decode('{"type":"NodeJoined","node":"n0","address":"h","node_rank":0,"claim":' + str(1 << 63) + "}")


def test_it_is_not_negative() -> None:
    with refused(ValueError, forming.FLOATING_NEGATIVE, floating=-1):
        Machine(spec(floats=-1), Timeouts())
    assert JobState(spec(), Timeouts()).claims == {} and Claim(0, 0, "", ()).node == ""


def on_a_claimed_node(job: Job, lost: str, spares: int = 1) -> None:
    """This node is lost, and a node that is claimed has taken over its rank."""
    lose_node(job, lost)
    joins(job, 0, spares=spares)
    job.warm(), job.rest(), job.verify(), job.commit(1)
    assert job.machine.state.all_committed and "n7" in {worker.node for worker in job.machine.state.members()}


def test_a_rank_on_a_claimed_node_does_not_move_to_a_spare_on_a_claimed_node() -> None:
    """That would cost a pause, and the claim would stay."""
    job = Job(spec(2, 2, floats=1))
    on_a_claimed_node(job, "n1", spares=2)
    assert [spare.node for spare in job.machine.state.unassigned.values()] == ["n7"], "there is one that it could take"
    assert job.machine.state.migration is None


def test_a_rank_on_a_claimed_node_does_not_move_to_a_node_that_is_not_trusted() -> None:
    job = Job(spec(2, 2, floats=1))
    on_a_claimed_node(job, "n1")
    job.submit(events.NodeTainted("n0", "loud"))
    job.submit(events.NodeJoined("n2", "h2", 2, spares=1))
    job.submit(events.NodeTainted("n2", "loud", "nvml"))
    job.warm()
    assert job.machine.state.migration is None


def test_a_rank_on_a_claimed_node_tries_two_spares_of_the_jobs_own_and_no_third() -> None:
    job = Job(spec(2, 2, floats=1))
    on_a_claimed_node(job, "n1")
    job.submit(events.NodeJoined("n2", "h2", 2, spares=1))
    tried = 0
    for _ in range(4):
        job.warm()
        if job.machine.state.migration is not None:
            tried += 1
            job.lose(job.machine.state.migration.moves[0].newcomer)
    assert tried == 2


def test_a_claimed_node_that_is_in_use_does_not_count_for_a_rank_that_is_to_leave() -> None:
    job = Job(spec(3, 3, floats=2))
    on_a_claimed_node(job, "n2")
    (claim,) = of(commands.ClaimNode, leave(job, "n0"))
    assert (claim.claim, claim.rank) == (1, 0) and not job.machine.state.nodes["n7"].lost


def test_a_claimed_node_is_given_back_when_spares_of_the_jobs_own_start_for_the_ranks_that_leave() -> None:
    job = Job(spec(floats=1))
    leave(job, "n0")
    assert len(of(commands.StartWorker, joins(job, 0))) == 2
    said = job.submit(events.NodeJoined("n2", "h2", 2, spares=2))
    assert [start.node for start in of(commands.StartWorker, said)] == ["n2", "n2"]
    assert of(commands.GiveBackNode, said) == [commands.GiveBackNode(0, "n7")]
