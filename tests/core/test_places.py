"""A node of spares has one place for each spare that its agent has offered, and no rank goes there beyond them."""

from __future__ import annotations

import json

import pytest
from tests.core.core_job import Job, assigned, moving, of

from understudy.core import commands, destination, drain, events, places
from understudy.core.model import JobSpec
from understudy.core.transitions import WorkerState
from understudy.messages import moves
from understudy.orchestrator.settings import Settings

TWO_AND_ONE = JobSpec("job", 2, 1, nodes=2, spares=1, spare_nodes=1)


def recovered(job: Job, worker: str) -> list[commands.Command]:
    """This worker is lost, and the job trains again."""
    said = job.lose(worker) + job.rest()
    said += job.verify()
    return said + job.commit(1)


def test_a_spare_that_took_a_rank_is_replaced_where_the_rank_left_a_place() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    said = recovered(job, "w0")
    assert assigned(said).environment["LOCAL_RANK"] == "0"
    assert [start.node for start in of(commands.StartWorker, said)] == ["n0"]
    job.warm()
    taken = assigned(job.lose("w1"))
    assert (job.node_of(taken.worker), taken.environment["LOCAL_RANK"]) == ("n0", "0")


def test_it_is_not_replaced_where_no_place_is() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    said = job.submit(events.NodesLost((events.LostNode("n0", "silent"),))) + job.rest() + job.verify() + job.commit(1)
    assert assigned(said).environment["LOCAL_RANK"] == "0" and not of(commands.StartWorker, said)


def test_a_node_of_two_places_has_room_for_one_more() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=2, spare_nodes=1), spares={2: 2})
    assert [start.node for start in of(commands.StartWorker, recovered(job, "w0"))] == ["n0"]
    second = assigned(job.lose("w1"))
    assert (job.node_of(second.worker), second.environment["LOCAL_RANK"], second.environment["LOCAL_WORLD_SIZE"]) == ("n2", "1", "2")


def without_n0() -> Job:
    """The only place of n2 has rank 0, whose node is lost."""
    job = Job(TWO_AND_ONE, spares={2: 1})
    job.submit(events.NodesLost((events.LostNode("n0", "silent"),)))
    job.rest()
    job.verify()
    job.commit(1)
    return job


def test_the_rank_of_a_worker_that_is_lost_starts_again_on_its_own_node_if_no_other_has_a_place() -> None:
    job = without_n0()
    (started,) = of(commands.StartWorker, job.lose("w1"))
    assert started.node == "n1"
    job.rest()
    again = assigned(job.warm())
    assert (again.rank, job.node_of(again.worker), again.environment["LOCAL_RANK"]) == (1, "n1", "0")


def test_also_on_a_node_that_is_not_trusted_but_not_on_one_that_is_drained() -> None:
    job = without_n0()
    job.submit(events.NodeTainted("n1", "a slow disk", "detector"))
    assert [start.node for start in of(commands.StartWorker, job.lose("w1"))] == ["n1"]
    drained = without_n0()
    drained.submit(events.NodeTainted("n1", "a new kernel", "drain", leave=True))
    assert not of(commands.StartWorker, drained.lose("w1"))


def test_also_while_the_scheduler_is_about_to_replace_the_lost_node() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=1, spare_nodes=1, replaces_nodes=True), spares={2: 1})
    job.submit(events.NodesLost((events.LostNode("n0", "silent"),)))
    job.rest()
    job.verify()
    job.commit(1)
    assert [start.node for start in of(commands.StartWorker, job.lose("w1"))] == ["n1"]


@pytest.mark.parametrize("spec", [JobSpec("job", 2, 1, nodes=2, spares=1, replenish=False), JobSpec("job", 2, 1, nodes=2, spares=0)])
def test_it_does_not_if_spares_are_not_replaced(spec: JobSpec) -> None:
    job = Job(spec)
    if spec.spares:
        recovered(job, "w0")
    assert not of(commands.StartWorker, job.lose("w1") + job.rest())
    assert job.machine.state.ended is not None


def test_a_node_that_cannot_start_workers_is_not_asked_for_ever() -> None:
    job = without_n0()
    started = of(commands.StartWorker, job.lose("w1"))
    for _ in range(9):
        if started:
            started = of(commands.StartWorker, job.submit(events.StartRefused(started[0].worker, "n1", "no memory")))
    job.rest()
    assert not started and job.machine.state.ended is not None
    assert (job.machine.state.nodes["n1"].spares, job.machine.state.nodes["n1"].refused) == (0, 0)


def test_two_ranks_that_leave_at_once_do_not_get_one_place() -> None:
    """The second spare is warm, and its place has a device that is not trusted."""
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=2, spare_nodes=1), spares={2: 2})
    state = job.machine.state
    state.nodes["n2"].devices, state.nodes["n2"].device_names = {1: "gpu1"}, {}
    job.submit(events.NodeTainted("n2", "errors", "nvml", "gpu1"))
    said = job.submit(events.NodeTainted("n0", "a new kernel", "drain", leave=True))
    assert [one.environment["LOCAL_RANK"] for one in of(commands.Assign, said)] == ["0"]
    assert destination.find(state, 2, "n2") == moves.NO_SPARE_THERE(node="n2")


def test_a_drill_does_not_keep_ranks_from_the_only_place() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    job.submit(events.DrillAsked(0, "asked"))
    job.warm()
    said = job.submit(events.NodeTainted("n1", "a new kernel", "drain", leave=True))
    assert assigned(said).environment["LOCAL_RANK"] == "0" and job.machine.state.drill is None


def test_a_rank_does_not_go_home_where_another_has_its_place() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=1, spare_nodes=1, home_after=5.0), spares={2: 1})
    job.submit(events.NodesLost((events.LostNode("n0", "silent"),)))
    job.rest()
    job.verify()
    job.commit(1)
    job.submit(events.NodeJoined("n0", "h0", 0))
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    job.warm()
    job.rest(2)
    job.verify()
    job.commit(2)
    assert job.node_of(job.machine.state.ranks[1]) == "n0"
    job.now += 6
    said = job.submit(events.Expired("home"))
    assert not of(commands.StartWorker, said) and job.machine.state.migration is None


def test_a_worker_that_was_released_is_not_waited_for_when_its_host_restarts() -> None:
    job = Job(TWO_AND_ONE, spares={2: 1})
    job.submit(events.NodesLost((events.LostNode("n0", "silent"),)))
    job.rest()
    job.verify()
    job.commit(1)
    holder = job.machine.state.holder(0)
    job.machine.state.set_worker_state(holder, WorkerState.LEAVING)
    job.machine.state.set_worker_state(holder, WorkerState.RELEASED)
    assert places.open_places(job.machine.state.nodes["n2"]) == []
    job.submit(events.NodeJoined("n2", "h2", 2, workers=()))
    assert places.open_places(job.machine.state.nodes["n2"]) == [0]


def test_a_job_that_an_earlier_version_began_is_replayed_as_that_version_decided() -> None:
    """There a second spare was started at the only place, and took the next rank."""
    settings = json.loads(Settings(TWO_AND_ONE).to_json())
    del settings["spec"]["bounded_places"], settings["spec"]["replaces_nodes"]
    job = Job(Settings.from_json(json.dumps(settings)).spec, spares={2: 1})
    assert [start.node for start in of(commands.StartWorker, recovered(job, "w0"))] == ["n2"]
    job.warm()
    taken = assigned(job.lose("w1"))
    assert (job.node_of(taken.worker), taken.environment["LOCAL_RANK"]) == ("n2", "1")


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
