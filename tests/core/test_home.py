"""When ranks go home, and to which spare. How a group goes home together is in `test_topology.py`, a whole course in the scenarios."""

from __future__ import annotations

from tests.core.core_job import Job, assigned, of

from understudy.core import commands, events, home
from understudy.core.model import JobSpec, Position, VotePhase
from understudy.core.transitions import WorkerState


def spec(after: float = 5.0, prepared: int = 0) -> JobSpec:
    return JobSpec("job", 2, 1, nodes=2, spares=1, home_after=after, prepared=prepared)


def finish(job: Job) -> None:
    """Let the moving ranks set up, bring all to the boundary, and commit one more step."""
    state = job.machine.state
    migration = state.migration
    assert migration is not None
    for move in list(migration.moves):
        job.submit(events.NewcomerReady(move.newcomer, migration.generation))
    assert state.recovery is not None
    for name in sorted(state.recovery.waiting):
        job.submit(events.Quiesced(name, state.generation, Position(1, VotePhase.IDLE), (), 1))
    job.verify()
    job.commit(1)


def taint(job: Job, node: str, reason: str = "loud") -> list[commands.Command]:
    return job.submit(events.NodeTainted(node, reason, "nvml", leave=bool(reason)))


def test_the_spare_that_has_set_up_as_the_rank_takes_it_home() -> None:
    job = Job(spec(prepared=1), spares={0: 2, 1: 0, 2: 1})
    (ready,) = [spare.name for spare in job.machine.state.idle(WorkerState.WARM) if spare.prepare is not None]
    job.submit(events.Prepared(ready, 0))
    taint(job, "n0")
    finish(job)
    assert job.machine.state.holder(0).node == "n2" and len(job.machine.state.nodes["n0"].idle(WorkerState.WARM)) == 2
    taint(job, "n0", "")
    job.now += 6
    job.submit(events.Expired(home.TIMER))
    migration = job.machine.state.migration
    assert migration is not None and [(move.rank, move.newcomer) for move in migration.moves] == [(0, ready)]


def test_each_node_has_its_own_time() -> None:
    job = Job(spec())
    taint(job, "n0")
    taint(job, "n1")
    taint(job, "n0", "")
    job.now += 3
    taint(job, "n1", "")
    job.now += 2.5
    said = job.submit(events.Expired(home.TIMER))
    (timer,) = [command.seconds for command in of(commands.SetTimer, said) if command.timer == home.TIMER]
    assert 2.0 < timer < 3.0, "the other node's"


def test_ranks_may_go_home_as_soon_as_their_node_is_trusted_again() -> None:
    job = Job(spec(after=0.0), spares={0: 0, 1: 0, 2: 1})
    taint(job, "n0")
    finish(job)
    taint(job, "n0", "")
    (start,) = of(commands.StartWorker, job.submit(events.Expired(home.TIMER)))
    assert start.node == "n0"
    job.warm(start.worker)
    assert job.machine.state.migration is not None and job.machine.state.migration.ranks == (0,)


def test_a_rank_goes_home_without_the_one_for_which_there_is_no_room_and_the_nodes_own_spare_is_replaced() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=0, home_after=5.0), spares={0: 1, 1: 0, 2: 2})
    node = job.machine.state.nodes["n0"]
    taint(job, "n0")
    finish(job)
    taint(job, "n0", "")
    job.now += 6
    said = job.submit(events.Expired(home.TIMER))
    (start,) = of(commands.StartWorker, said)
    assert start.node == "n0" and node.spares == 2 and not of(commands.Assign, said), "both are to go at one boundary"
    refused = job.submit(events.StartRefused(start.worker, "n0", "no memory"))
    assert assigned(refused).rank == 0 and node.spares == 1
