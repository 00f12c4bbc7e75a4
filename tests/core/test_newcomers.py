"""Corners of the machine around newcomers: spares that are prepared, ranks that move, and those that are lost on the way."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, moving, of
from tests.message_texts import codes, has

from understudy.core import commands, events
from understudy.core.migration import refusal
from understudy.core.model import BuddyCopyRef, JobSpec, LossCause, Position, VotePhase
from understudy.core.state import Stage
from understudy.core.transitions import RefusalReason, WorkerState
from understudy.messages import losses, moves, recoveries


def killed(said: list[commands.Command]) -> dict[str, str]:
    return {command.worker: command.reason for command in of(commands.KillWorker, said)}


def test_of_spares_that_are_prepared_for_others_one_on_a_trusted_node_is_started_over() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=2, prepared=2))
    state = job.machine.state
    for _ in range(2):
        for spare in state.idle(WorkerState.WARM):
            if spare.prepare is not None and not spare.ready:
                job.submit(events.Prepared(spare.name, spare.prepare.rank))
    here, there = state.idle(WorkerState.WARM)
    assert here.prepare is not None and there.prepare is not None and (here.node, there.node) == ("n0", "n1")
    free = min({0, 1, 2, 3} - {here.prepare.rank, there.prepare.rank})
    job.submit(events.NodeTainted("n0", "loud"))
    assert there.name in killed(job.lose(state.ranks[free]))


def test_a_spare_that_is_not_prepared_survives_a_restart_of_all_ranks() -> None:
    job = Job(JobSpec("job", 1, 1, spares=1), forming=True)
    job.warm()
    assert "w1" not in killed(job.lose("w0")) and job.machine.state.restarts == 1


def test_a_newcomer_that_is_not_verified_in_time_is_reported_even_if_its_rank_only_moves() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2))
    newcomer = moving(job)
    ended = killed(job.submit(events.Expired("resume")))
    assert codes(ended[newcomer]) == [losses.NOT_VERIFIED_IN_TIME.code]


def test_a_spare_that_is_not_prepared_in_time_does_not_end_the_newcomer_of_a_migration() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=1))
    prepared = [worker.name for worker in job.machine.state.idle(WorkerState.WARM) if worker.prepare is not None]
    newcomer = assigned(job.submit(events.MigrationAsked(1, "asked"))).worker
    assert newcomer not in prepared
    assert list(killed(job.submit(events.Expired("prepare")))) == prepared


def test_a_generation_that_only_its_workers_know_calls_a_migration_off() -> None:
    """An orchestrator that was killed had begun it."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(1, "asked"))).worker
    said = job.submit(events.Quiesced("w0", 5, Position(1, VotePhase.RUNNING), (), 1))
    assert job.machine.state.migration is None and newcomer in killed(said)
    assert {command.generation for command in of(commands.Abort, said)} == {6}


def test_an_incident_notes_that_a_migration_was_called_off_and_the_holder_of_the_rank() -> None:
    job = Job(JobSpec("job", 3, 3, spares=2))
    moving(job)
    job.lose("w2")
    job.rest()
    incident = job.machine.state.incident
    assert incident is not None
    assert any(has(note, recoveries.STAYS, rank=1, worker="w1") and has(note, losses.KILLED, rank=2) for note in incident.notes)
    assert job.machine.state.ranks[1] == "w1"


def test_a_spare_is_prepared_for_a_rank_on_a_node_that_is_not_trusted_first() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=1, prepared=1), spares={2: 1}, forming=True)
    job.submit(events.NodeTainted("n1", "loud"))
    said = job.warm()
    said += job.commit(0)
    (prepare,) = of(commands.Prepare, said)
    assert prepare.rank == 2, "the first of those on n1"


def test_a_newcomer_that_has_finished_is_verified_whatever_was_lost_on_the_way() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.lose("w1")).worker
    job.rest()
    job.submit(events.Finished(newcomer, job.machine.state.generation))
    assert job.machine.state.workers[newcomer].state is WorkerState.MEMBER
    assert "resume" not in job.machine.state.timers


def test_a_rank_that_moved_and_is_lost_with_its_newcomer_has_no_holder() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={1: 1, 2: 1})
    newcomer = moving(job)
    assert job.node_of(newcomer) == job.node_of("w1") == "n1"
    heard = job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    assert recoveries.STAYS.code not in codes(of(commands.Tell, heard))
    assert assigned(heard).rank == 1


def test_a_newcomer_that_does_not_verify_in_a_generation_that_is_over_is_not_heard() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.lose("w1")).worker
    assert job.submit(events.VerifyFailed(newcomer, 1, "differs")) == []
    assert job.machine.state.refused == {("VerifyFailed", RefusalReason.GENERATION): 1}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_set_up_ahead_that_raises_ends_its_spare_and_not_the_job(rank: int) -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=2))
    (spare,) = [w.name for w in job.machine.state.idle(WorkerState.WARM) if w.prepare is not None and w.prepare.rank == 0]
    if rank == 1:
        job.submit(events.Prepared(spare, 0))
        (spare,) = [w.name for w in job.machine.state.idle(WorkerState.WARM) if w.prepare is not None and w.prepare.rank == 1]
    said = job.submit(events.ScriptFailed(spare, rank, 0, "OSError: the file is locked", "..."))
    assert list(killed(said)) == [spare] and not of(commands.EndJob, said)


@pytest.mark.parametrize("lost", [True, False])
def test_no_rank_moves_once_one_has_finished(lost: bool) -> None:
    job = Job(JobSpec("job", 2, 2, spares=2))
    job.submit(events.Finished("w1", 0, 1))
    if lost:
        job.lose("w1")
    assert refusal(job.machine.state, 0) == moves.ABOUT_TO_FINISH()


def test_a_newcomer_that_is_ready_for_another_generation_moves_nothing() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(1, "asked"))).worker
    migration = job.machine.state.migration
    assert migration is not None
    assert job.submit(events.NewcomerReady(newcomer, migration.generation + 1)) == []
    assert job.machine.state.refused == {("NewcomerReady", RefusalReason.GENERATION): 1} and migration.stage is Stage.PREPARING


@pytest.mark.parametrize(
    "stand", [Position(2, VotePhase.RUNNING), Position(1, VotePhase.VOTED)], ids=["has passed a vote", "may have passed one"]
)
def test_a_rank_that_may_have_moved_on_does_not_go_back_to_its_old_worker(stand: Position) -> None:
    """The newcomer of the moving rank has voted, which is not known yet.

    The others are after that vote, or have voted and have the copies of the ranks that are lost or silent, so that one of these may have
    gone on; the old worker is before the vote.
    """
    job = Job(JobSpec("job", 3, 3, spares=2))
    newcomer = moving(job)
    job.lose("w2")
    state = job.machine.state
    copies = tuple(BuddyCopyRef(rank, 1) for rank in range(3))
    job.submit(events.Quiesced("w1", state.generation, Position(1, VotePhase.IDLE), copies, 1))
    said = job.submit(events.Quiesced("w0", state.generation, stand, copies, 1))
    assert killed(said) == {"w1": "rank 1 has moved on"} and state.ranks[1] == newcomer
    assert {recover.start for recover in of(commands.Recover, said)} == {2}


def test_a_vote_before_the_boundary_does_not_show_which_ranks_went_on() -> None:
    """They were told to roll forward to the boundary, and are stopped before they hear of it."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(1, "asked"))).worker
    state = job.machine.state
    copies = tuple(BuddyCopyRef(rank, 1) for rank in range(2))
    job.submit(events.NewcomerReady(newcomer, 1))
    for name in ("w0", "w1"):
        job.submit(events.Quiesced(name, 1, Position(1, VotePhase.VOTED), copies, 1))
    assert state.migration is not None and (state.migration.stage, state.migration.boundary) == (Stage.MOVING, 2)
    said = job.lose(newcomer)
    assert state.recovery is not None and state.recovery.waiting == {"w0", "w1"}
    assert {abort.lost for abort in of(commands.Abort, said)} == {(1,)}
    for name in ("w0", "w1"):
        said = job.submit(events.Quiesced(name, 2, Position(1, VotePhase.VOTED), copies, 1))
    assert not killed(said) and state.ranks[1] == "w1" and job.machine.state.migration is None
    assert {(recover.worker, recover.start) for recover in of(commands.Recover, said)} == {("w0", 2), ("w1", 2)}


def test_in_a_job_of_one_rank_the_old_worker_has_it_back() -> None:
    """There is no other rank whose position could show it."""
    job = Job(JobSpec("job", 1, 1, spares=2))
    newcomer = moving(job, rank=0)
    job.lose(newcomer)
    said = job.submit(events.Quiesced("w0", job.machine.state.generation, Position(1, VotePhase.IDLE), (), 1))
    assert [recover.worker for recover in of(commands.Recover, said)] == ["w0"] and job.machine.state.ranks[0] == "w0"


def test_an_old_worker_is_not_all_that_is_left_if_the_newcomer_is_there() -> None:
    """A rank that is silent may have gone on with the lost one."""
    job = Job(JobSpec("job", 2, 2, spares=2))
    moving(job)
    (end,) = of(commands.EndJob, job.lose("w0"))
    assert has(end.message, recoveries.NO_STATE_LEFT)


def test_no_rank_waits_for_an_old_worker_whose_rank_has_moved() -> None:
    job = Job(JobSpec("job", 3, 3, spares=2))
    newcomer = moving(job)
    generation = job.machine.state.generation
    job.lose("w2")
    recovery = job.machine.state.recovery
    assert recovery is not None and recovery.waiting == {"w0", "w1"}
    (release,) = of(commands.Release, job.submit(events.Verified(newcomer, generation, 3)))
    assert release.worker == "w1" and recovery.waiting == {"w0", newcomer}


def test_a_spare_whose_set_up_raises_in_an_incident_is_replaced_after_it() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=1))
    (spare,) = [w.name for w in job.machine.state.idle(WorkerState.WARM) if w.prepare is not None]
    job.submit(events.Prepared(spare, 0))
    job.lose("w1")
    said = job.submit(events.ScriptFailed(spare, 0, 0, "OSError: the file is locked", "..."))
    assert list(killed(said)) == [spare] and not of(commands.StartWorker, said)


@pytest.mark.parametrize("reason", ["drain", ""])
def test_a_migration_gives_its_reason_and_begins_once(reason: str) -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(1, reason))).worker
    ready = events.NewcomerReady(newcomer, job.machine.state.highest_announced_generation)
    assert len(of(commands.Pause, job.submit(ready))) == 2 and job.submit(ready) == []
    assert job.machine.state.refused == {("NewcomerReady", RefusalReason.OVER): 1}
    assert job.machine.state.incident is not None and job.machine.state.incident.reason == (reason or moves.ASKED())


def test_a_migration_ends_when_a_rank_has_finished_before_it_began_to_move() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(1, ""))).worker
    job.submit(events.Finished("w0", 0, 1))
    said = job.submit(events.NewcomerReady(newcomer, job.machine.state.highest_announced_generation))
    assert list(killed(said)) == [newcomer] and not of(commands.Pause, said)
    assert job.machine.state.incident is None and job.machine.state.migration is None


def test_a_spare_is_prepared_for_no_rank_once_too_many_were_not() -> None:
    """Each rank has had two but the last, which has had none."""
    job = Job(JobSpec("job", 5, 5, spares=1, prepared=1))
    for number in range(8):
        (spare,) = [worker for worker in job.machine.state.idle(WorkerState.WARM) if worker.prepare is not None]
        assert spare.prepare is not None and spare.prepare.rank == number // 2
        job.submit(events.ScriptFailed(spare.name, spare.prepare.rank, 0, "OSError: the file is locked", "..."))
        job.warm()
    assert [worker.prepare for worker in job.machine.state.idle(WorkerState.WARM)] == [None]


def test_a_newcomer_that_is_lost_at_the_boundary_is_in_the_incident() -> None:
    job = Job(JobSpec("job", 3, 3, spares=2))
    newcomer = assigned(job.submit(events.MigrationAsked(1, "asked"))).worker
    job.submit(events.NewcomerReady(newcomer, 1))
    job.lose(newcomer)
    state = job.machine.state
    assert state.incident is not None and not state.incident.planned
    assert (newcomer, LossCause.KILLED) in [(part.old_worker, part.cause) for part in state.incident.ranks]


def test_a_newcomer_that_is_lost_before_the_boundary_explains_no_broken_connection() -> None:
    job = Job(JobSpec("job", 3, 3, spares=2))
    newcomer = assigned(job.submit(events.MigrationAsked(1, "asked"))).worker
    job.submit(events.CommunicationBroken("w0", 0, "rank 2 is silent"))
    assert not of(commands.Abort, job.lose(newcomer))
    assert job.machine.state.incident is None and "communication" in job.machine.state.timers


def test_of_two_ranks_that_are_lost_one_has_a_spare_that_is_prepared_for_it() -> None:
    job = Job(JobSpec("job", 3, 1, nodes=3, spares=1, prepared=1), spares={0: 0, 1: 0, 2: 1}, forming=True)
    job.submit(events.NodeTainted("n1", "loud"))
    job.warm()
    job.commit(0)
    (spare,) = [worker.name for worker in job.machine.state.idle(WorkerState.WARM)]
    job.submit(events.Prepared(spare, 1))
    said = job.submit(events.NodesLost((events.LostNode("n0", "silent"), events.LostNode("n1", "silent"))))
    assert (assigned(said).worker, assigned(said).rank) == (spare, 1)


def test_a_newcomer_that_is_lost_with_another_rank_while_its_own_moves_gives_it_back() -> None:
    job = Job(JobSpec("job", 3, 3, spares=3))
    newcomer = moving(job)
    job.lose("w2")
    generation = job.machine.state.generation
    said = job.lose(newcomer)
    assert job.machine.state.generation == generation + 1
    assert "w1" in {abort.worker for abort in of(commands.Abort, said)}
    job.rest()
    assert job.machine.state.ranks[1] == "w1"


def test_a_newcomer_without_a_recover_has_committed_nothing() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.lose("w1")).worker
    job.submit(events.Committed(newcomer, job.machine.state.generation, 1, 2))
    assert job.machine.state.workers[newcomer].state is WorkerState.NEWCOMER
