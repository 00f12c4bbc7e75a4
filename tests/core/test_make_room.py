"""A rank is to leave a node while every spare is prepared for another rank: one of them is started over for it."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, of

from understudy.core import commands, events
from understudy.core.model import JobSpec, LossCause
from understudy.core.transitions import WorkerState


def ready(job: Job) -> None:
    """Every spare has been through the set-up for which it was chosen."""
    state = job.machine.state
    for worker in list(state.workers.values()):
        if worker.state is WorkerState.WARM and worker.prepare is not None and not worker.ready:
            job.submit(events.Prepared(worker.name, worker.prepare.rank))


def prepared(job: Job) -> dict[str, tuple[str, int]]:
    """Of spares: their nodes and ranks."""
    idle = job.machine.state.idle(WorkerState.WARM)
    return {worker.name: (worker.node, worker.prepare.rank) for worker in idle if worker.prepare is not None}


def job(nodes: int = 2, spares: int = 2) -> Job:
    made = Job(JobSpec("job", world_size=2, workers_per_node=1, nodes=2, spares=spares, prepared=spares), spares=None)
    ready(made)
    return made


def test_a_spare_that_is_prepared_for_another_rank_is_started_over_for_one_that_leaves() -> None:
    made = job()
    assert sorted(prepared(made).values()) == [("n0", 0), ("n1", 1)], "each for the rank of its own node"
    (other,) = [name for name, (node, _) in prepared(made).items() if node == "n0"]
    said = made.submit(events.NodeTainted("n1", "it is hot", leave=True))
    assert [command.worker for command in of(commands.KillWorker, said)] == [other]
    assert [(command.node, command.spare) for command in of(commands.StartWorker, said)] == [("n0", True)]
    said = made.warm()
    (assigned,) = of(commands.Assign, said)
    assert (assigned.rank, made.node_of(assigned.worker)) == (1, "n0")
    assert made.machine.state.migration is not None


def test_nothing_is_restarted_where_no_rank_leaves_or_a_spare_is_coming() -> None:
    made = job()
    assert not of(commands.KillWorker, made.submit(events.NodeTainted("n1", "it is hot")))
    made.submit(events.NodeTainted("n1", "it is hot", "nvml", "gpu0", leave=True))
    for again in range(3):
        assert not of(
            commands.KillWorker, made.submit(events.NodeTainted("n1", f"it is hotter: {again}", "kernel", f"gpu{again}", leave=True))
        )


@pytest.mark.parametrize("fails", [1, 2, 3, 20])
def test_it_is_not_started_over_for_ever(fails: int) -> None:
    """Its set-up raises, again and again."""
    made = job()
    made.submit(events.NodeTainted("n1", "it is hot", leave=True))
    state, ended = made.machine.state, 0
    for _ in range(fails):
        made.warm()
        for worker in list(state.workers.values()):
            if worker.state is WorkerState.WARM and worker.prepare is not None and not worker.ready:
                said = made.submit(events.ScriptFailed(worker.name, worker.prepare.rank, 1, "it is locked", ""))
                ended += len(of(commands.KillWorker, said))
            elif worker.state is WorkerState.NEWCOMER:
                said = made.submit(events.WorkerLost(worker.name, LossCause.KILLED, "signal 9", made.now))
                ended += len(of(commands.KillWorker, said))
    assert ended <= 12 and state.ended is None


def test_room_is_made_when_the_spare_that_would_have_come_is_lost() -> None:
    made = job()
    (other,) = [name for name, (node, _) in prepared(made).items() if node == "n0"]
    made.submit(events.NodeJoined("n2", "10.0.0.2", 2, spares=1))
    assert not of(commands.KillWorker, made.submit(events.NodeTainted("n1", "it is hot", leave=True))), "one starts on n2"
    said = made.submit(events.NodesLost((events.LostNode("n2", "gone", 0.0),)))
    assert other in [command.worker for command in of(commands.KillWorker, said)]
