"""Spares that set up ahead: which of them, and for which rank; and what making room for a rank leaves to the others."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, of

from understudy.core import commands, events
from understudy.core.model import JobSpec
from understudy.core.transitions import WorkerState


def prepared(job: Job) -> list[tuple[str, int]]:
    """Nodes and ranks of spares that are in a set-up, or have been through it."""
    idle = job.machine.state.idle(WorkerState.WARM)
    return [(worker.node, worker.prepare.rank) for worker in idle if worker.prepare is not None]


def test_a_spare_on_a_tainted_node_is_not_prepared_while_one_is_elsewhere() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2, prepared=1), forming=True)
    job.submit(events.NodeTainted("n0", "loud"))
    job.warm()
    job.commit(0)
    assert prepared(job) == [("n1", 0)]


def test_a_spare_on_a_claimed_node_is_not_prepared() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=1, prepared=1, floating=1), spares={0: 0, 1: 0})
    job.submit(events.NodeTainted("n0", "loud", "nvml", leave=True))
    job.submit(events.NodeJoined("n7", "h7", 7, spares=1, claim=0))
    said = job.warm()
    assert [job.node_of(assign.worker) for assign in of(commands.Assign, said)] == ["n7"], "it takes the rank"
    assert not of(commands.Prepare, said)


def test_what_is_prepared_on_a_tainted_node_serves_a_rank_that_stays() -> None:
    """Another spare is prepared for another rank."""
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2, prepared=2))
    assert sorted(prepared(job)) == [("n0", 0), ("n1", 1)]
    job.submit(events.NodeTainted("n0", "loud"))
    (other,) = [worker.name for worker in job.machine.state.idle(WorkerState.WARM) if worker.node == "n1"]
    job.lose(other)
    job.warm()
    assert sorted(prepared(job)) == [("n0", 0), ("n1", 1)]


@pytest.mark.parametrize("starting", [True, False])
def test_ranks_for_which_no_room_is_made_keep_no_other_rank_from_moving(starting: bool) -> None:
    """Ranks 0 and 1 wait for a spare that starts, or for none; the one that is there is prepared for rank 2, which is to leave, too."""
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=1, prepared=1), spares={0: 0, 1: 0})
    job.submit(events.NodeTainted("n1", "loud"))
    (spare, *_) = of(commands.StartWorker, job.submit(events.NodeJoined("n2", "h2", 2, "", 1 + starting)))
    job.warm(spare.worker)
    assert prepared(job) == [("n2", 2)]
    job.submit(events.Prepared(spare.worker, 2))
    job.submit(events.NodeTainted("n0", "loud", leave=True, also=("n1",)))
    migration = job.machine.state.migration
    assert migration is not None and [(move.rank, move.newcomer) for move in migration.moves] == [(2, spare.worker)]
