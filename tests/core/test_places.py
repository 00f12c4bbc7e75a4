"""A node of spares has one place for each spare that its agent has offered, and no rank goes there beyond them."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, moving, of

from understudy.core import commands, drain, events, places
from understudy.core.model import JobSpec
from understudy.messages import moves

TWO_AND_ONE = JobSpec("job", 2, 1, nodes=2, spares=1, spare_nodes=1)


def recovered(job: Job, worker: str) -> list[commands.Command]:
    """This worker is lost, and the job trains again."""
    said = job.lose(worker) + job.rest()
    said += job.verify()
    return said + job.commit(1)


def test_a_spare_that_took_a_rank_is_not_replaced_where_its_place_is_taken() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    said = recovered(job, "w0")
    assert assigned(said).environment["LOCAL_RANK"] == "0" and not of(commands.StartWorker, said)


def test_a_node_of_two_places_has_room_for_one_more() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=2, spare_nodes=1), spares={2: 2})
    assert not of(commands.StartWorker, recovered(job, "w0")), "the other spare is warm"
    second = assigned(job.lose("w1"))
    assert (job.node_of(second.worker), second.environment["LOCAL_RANK"], second.environment["LOCAL_WORLD_SIZE"]) == ("n2", "1", "2")


def test_the_rank_of_a_worker_that_is_lost_starts_again_on_its_own_node_if_no_other_has_a_place() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    recovered(job, "w0")
    (started,) = of(commands.StartWorker, job.lose("w1"))
    assert started.node == "n1"
    job.rest()
    again = assigned(job.warm())
    assert (again.rank, job.node_of(again.worker), again.environment["LOCAL_RANK"]) == (1, "n1", "0")


@pytest.mark.parametrize("spec", [JobSpec("job", 2, 1, nodes=2, spares=1, replenish=False), JobSpec("job", 2, 1, nodes=2, spares=0)])
def test_it_does_not_if_spares_are_not_replaced(spec: JobSpec) -> None:
    job = Job(spec)
    if spec.spares:
        recovered(job, "w0")
    assert not of(commands.StartWorker, job.lose("w1") + job.rest())
    assert job.machine.state.ended is not None


def test_it_does_not_on_a_node_that_cannot_start_workers() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    recovered(job, "w0")
    (started,) = of(commands.StartWorker, job.lose("w1"))
    elsewhere = of(commands.StartWorker, job.submit(events.StartRefused(started.worker, started.node, "no memory")))
    assert [one.node for one in elsewhere] == ["n0"], "the other node that misses a rank"
    job.submit(events.StartRefused(elsewhere[0].worker, "n0", "no memory"))
    job.rest()
    assert job.machine.state.ended is not None


def test_several_ranks_that_leave_do_not_share_a_place() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    state = job.machine.state
    assert drain.plan(state, ["n0", "n1"]).refused == moves.TOO_FEW_PLACES(ranks="ranks 0, 1", room=1)
    assert drain.plan(state, ["n0"]).refused == ""
    moving(job, 0)
    job.verify()
    job.commit(1)
    assert places.room(state, state.nodes["n2"]) == 0
    assert drain.plan(state, ["n1"]).refused == moves.NOWHERE_TO_GO(ranks="rank 1")


def test_a_drill_leaves_a_warm_spare_at_the_only_place() -> None:
    """It needs no accelerator before it takes a rank, and by then the drill is over."""
    job = Job(TWO_AND_ONE, spares={2: 1})
    said = job.submit(events.DrillAsked(0, "asked"))
    assert len(of(commands.StartWorker, said)) == 1
    job.warm()
    taken = assigned(job.lose("w1"))
    assert (taken.worker, taken.environment["LOCAL_RANK"]) == ("w3", "0"), "the spare of the drill, in the set-up of rank 0, has ended"


def test_the_spare_of_a_drill_takes_the_rank_for_which_it_sets_up() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    job.submit(events.DrillAsked(0, "asked"))
    job.warm()
    taken = assigned(job.lose("w0"))
    assert taken.environment["LOCAL_RANK"] == "0"


def test_a_place_is_open_again_when_its_worker_is_lost() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    recovered(job, "w0")
    state = job.machine.state
    assert places.open_places(state.nodes["n2"]) == []
    job.lose("w2")
    assert places.open_places(state.nodes["n2"]) == [0]


def test_a_job_whose_scheduler_replaces_nodes_can_drain_more_than_it_has_spares() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=1, spare_nodes=1, replaces_nodes=True), spares={2: 1})
    assert drain.plan(job.machine.state, ["n0", "n1"]).refused == ""
