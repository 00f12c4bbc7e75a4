"""What a drain asks for, and what it is refused for. Its course is in the scenarios, and every order of it in the model."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from tests.core.core_job import Job, assigned, of

from understudy.core import commands, drain, events
from understudy.core.model import JobSpec
from understudy.core.transitions import WorkerState
from understudy.messages import moves
from understudy.orchestrator import taints_view

DRAIN = events.NodeTainted("n0", "a new kernel", "drain", leave=True)


def refusal(job: Job, node: str = "n0") -> str:
    return drain.plan(job.machine.state, [node]).refused


def test_a_node_whose_ranks_have_somewhere_to_go_can_be_drained() -> None:
    assert refusal(Job(JobSpec("job", 2, 1, nodes=2, spares=2))) == ""
    assert refusal(Job(JobSpec("job", 4, 2, nodes=2, spares=2))) == "", "one spare after the other, as they are replaced"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (JobSpec("job", 2, 1, nodes=2, spares=0), moves.NOWHERE_TO_GO(ranks="rank 0")),
        (JobSpec("job", 2, 1, nodes=2, spares=1), moves.NOWHERE_TO_GO(ranks="rank 0")),  # the spare is on the same node
        (JobSpec("job", 2, 2, nodes=1, spares=2), moves.NOWHERE_TO_GO(ranks="ranks 0, 1")),
        (JobSpec("job", 4, 2, nodes=2, spares=2, replenish=False), moves.TOO_FEW_SPARES(ranks="ranks 0, 1", room=1)),
    ],
)
def test_without_a_place_for_its_ranks_it_is_refused(spec: JobSpec, expected: str) -> None:
    assert refusal(Job(spec)) == expected


def test_a_spare_on_a_node_that_is_not_trusted_is_no_place_to_go() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    job.submit(events.NodeTainted("n1", "its fan is loud"))
    assert refusal(job) == moves.NOWHERE_TO_GO(ranks="rank 0")


def test_a_node_without_ranks_can_always_be_drained_and_one_that_is_not_there_never() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={2: 2})
    assert refusal(job, "n2") == ""
    assert refusal(job, "n9") == moves.NO_SUCH_NODE(node="n9", known="n0, n1, n2")
    job.submit(events.StopAsked("enough", 1))
    assert refusal(job, "n2") == moves.JOB_OVER()


def test_several_nodes_are_looked_at_as_one() -> None:
    """Each of the two could be drained alone, to a spare on the other."""
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=4, replenish=False))
    assert refusal(job, "n0") == refusal(job, "n1") == ""
    assert drain.plan(job.machine.state, ["n0", "n1"]).refused == moves.NOWHERE_TO_GO(ranks="ranks 0, 1, 2, 3")


def test_a_plan_counts_spares_and_pauses() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=0), spares={2: 3})
    plan = drain.plan(job.machine.state, ["n0"])
    assert (plan.ranks, plan.warm, plan.coming, plan.wait, plan.pauses(4)) == ((0, 1), 2, 1, 0, 1)
    plan = drain.plan(job.machine.state, ["n0", "n1"])
    assert (plan.ranks, plan.warm, plan.wait, plan.pauses(4)) == ((0, 1, 2, 3), 3, 1, 2)


def test_a_spare_that_is_prepared_for_another_rank_takes_none_at_once() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2, prepared=2))
    assert [spare.prepare.rank for spare in job.machine.state.idle(WorkerState.WARM) if spare.prepare] == [0, 1]
    plan = drain.plan(job.machine.state, ["n0"])
    assert (plan.ranks, plan.warm, plan.coming, plan.wait) == ((0,), 0, 1, 1)


def test_no_rank_goes_from_one_drained_node_to_another() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=0), spares={1: 2, 2: 4})
    job.submit(events.NodeTainted("n0", "a new kernel", "drain", leave=True, also=("n1", "n7")))
    migration = job.machine.state.migration
    assert migration is not None and migration.ranks == (0, 1, 2)
    assert {job.node_of(move.newcomer) for move in migration.moves} == {"n2"}


def test_spares_of_a_node_without_ranks_are_ended_at_once_and_start_again_after_the_drain() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={2: 2})
    said = job.submit(events.NodeTainted("n2", "a new kernel", "drain", leave=True))
    assert [command.worker for command in of(commands.KillWorker, said)] == ["w2", "w3"]
    assert moves.DRAIN_DONE(node="n2") in [command.text for command in of(commands.Tell, said)]
    assert of(commands.StartWorker, job.lose("w2")) == []
    again = job.submit(events.NodeTainted("n2", "", "drain"))
    assert [command.node for command in of(commands.StartWorker, again)] == ["n2", "n2"]


def test_a_detector_does_not_lift_a_drain_and_a_person_does() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    job.submit(DRAIN)
    job.submit(events.NodeTainted("n0", "", "nvml"))
    assert job.machine.state.nodes["n0"].drain is not None
    job.submit(events.NodeTainted("n0", ""))
    assert job.machine.state.nodes["n0"].drain is None


def test_a_rank_whose_move_has_failed_twice_is_tried_again_on_a_new_request() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    said = job.submit(DRAIN)
    for _ in range(2):
        said = [*job.lose(assigned(said).worker), *job.warm()]
    assert of(commands.Assign, said) == [], "it would be tried for ever"
    assert drain.hindrance(job.machine.state, job.machine.state.nodes["n0"]) == moves.MOVED_IN_VAIN()
    assert assigned(job.submit(DRAIN)).rank == 0


def test_the_reason_why_a_rank_waits_is_reported() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    job.lose("w3")
    job.submit(DRAIN)
    node = job.machine.state.nodes["n0"]
    assert drain.hindrance(job.machine.state, node) == moves.NO_SPARE_ELSEWHERE()
    job.warm()
    assert drain.hindrance(job.machine.state, node) == "", "it is on its way"


def test_a_node_is_empty_only_when_its_processes_are_known_to_have_ended() -> None:
    """An operator relies on that to switch the node off, even before its agent has reconnected after a restart of the orchestrator."""
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={2: 1})
    job.submit(events.NodeTainted("n2", "a new kernel", "drain", leave=True))

    def stage(there: Collection[str] | None) -> str:
        (found,) = taints_view.drains(job.machine.state, lambda node: there)
        return found["stage"]

    assert [stage(there) for there in (None, {"w2"}, ())] == ["draining", "draining", "drained"]
    job.submit(events.NodesLost((events.LostNode("n2", "silent"),)))
    assert stage({"w2"}) == "drained", "nothing runs on a node that is lost"


def test_a_spare_that_is_prepared_for_a_drained_rank_takes_it_at_once() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=1, prepared=1), spares={0: 0, 1: 0, 2: 1})
    assert [spare.prepare.rank for spare in job.machine.state.idle(WorkerState.WARM) if spare.prepare] == [0]
    assert [drain.plan(job.machine.state, [name]).warm for name in ("n0", "n1")] == [1, 0]


def test_a_node_that_was_given_back_cannot_be_drained() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={2: 2})
    job.submit(events.NodeTainted("n2", "loud", "nvml", leave=True))
    job.submit(events.NodeReleased("n2"))
    assert refusal(job, "n2") == moves.NODE_RELEASED(node="n2")


def test_a_node_that_is_left_is_not_given_back_while_its_only_rank_waits_for_a_spare() -> None:
    """A spare on the node itself is no place to go, and does not hide the rank."""
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={0: 1, 1: 0})
    job.submit(events.NodeTainted("n0", "loud", "nvml", leave=True))
    state = job.machine.state
    assert state.migration is None and len(state.nodes["n0"].workers) == 2
    assert not drain.releasable(state, state.nodes["n0"])


def test_a_drain_is_done_when_its_node_is_lost_and_given_back_also_in_a_recovery() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={0: 1, 2: 1})
    job.lose("w0")
    job.submit(events.NodeTainted("n2", "a new kernel", "drain", leave=True))
    job.submit(events.NodesLost((events.LostNode("n2", "silent"),)))
    said = job.submit(events.NodeReleased("n2"))
    assert job.machine.state.incident is not None
    assert [command.text for command in of(commands.Tell, said)] == [moves.DRAIN_DONE(node="n2")]
