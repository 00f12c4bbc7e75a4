"""Ranks that leave together: one boundary, one generation; and what a loss in the middle makes of each of them."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, of

from understudy.core import commands, events
from understudy.core.model import JobSpec, Position, VotePhase
from understudy.core.state import Migration, Stage


def drained(ranks: int = 4, spares: int = 4) -> Job:
    """All ranks but the last two are on n0, which is to be left; spares are on n2."""
    job = Job(JobSpec("job", ranks, ranks // 2, 2, 0, replenish=False), spares={2: spares})
    job.submit(events.NodeTainted("n0", "it is to be patched", "drain", leave=True))
    return job


def migration(job: Job) -> Migration:
    found = job.machine.state.migration
    assert found is not None
    return found


def ready(job: Job, *ranks: int) -> list[commands.Command]:
    moves = [move for move in migration(job).moves if not ranks or move.rank in ranks]
    generation = migration(job).generation
    return [c for move in moves for c in job.submit(events.NewcomerReady(move.newcomer, generation))]


def at_boundary(job: Job) -> list[commands.Command]:
    state = job.machine.state
    assert state.recovery is not None
    waiting = sorted(state.recovery.waiting)
    return [c for name in waiting for c in job.submit(events.Quiesced(name, state.generation, Position(1, VotePhase.IDLE), (), 1))]


def holders(job: Job) -> dict[int, str]:
    """Nodes of the ranks."""
    return {rank: job.machine.state.holder(rank).node for rank in job.machine.state.ranks}


def test_they_move_at_one_boundary() -> None:
    job = drained()
    assert migration(job).ranks == (0, 1)
    assert not of(commands.Pause, ready(job, 0)), "the other has not set up"
    said = ready(job, 1)
    assert {pause.leaving for pause in of(commands.Pause, said)} == {(0, 1)}
    assert {recover.leavers for recover in of(commands.Recover, at_boundary(job))} == {(0, 1)}
    job.verify()
    assert job.machine.state.migration is None
    job.commit(1)
    (incident,) = job.machine.state.incidents
    assert incident.planned and [part.rank for part in incident.ranks] == [0, 1]
    assert holders(job) == {0: "n2", 1: "n2", 2: "n1", 3: "n1"}


def test_those_without_a_spare_follow() -> None:
    job = drained(spares=1)
    assert migration(job).ranks == (0,)
    ready(job)
    at_boundary(job)
    job.verify()
    job.commit(1)
    assert job.machine.state.migration is None and holders(job)[1] == "n0"
    job.submit(events.NodeJoined("n3", "h3", 3, "", 1))
    job.warm()
    assert migration(job).ranks == (1,)


def test_one_rank_stays_until_the_others_have_moved() -> None:
    job = Job(JobSpec("job", 2, 2, 1, 0, replenish=False), spares={1: 2})
    job.submit(events.NodeTainted("n0", "it is to be patched", "drain", leave=True))
    assert migration(job).ranks == (0,)
    ready(job)
    at_boundary(job)
    job.verify()
    job.commit(1)
    assert migration(job).ranks == (1,)


def test_a_newcomer_that_is_lost_while_it_sets_up_delays_no_other_move() -> None:
    job = drained(spares=2)
    ready(job, 1)
    lost = migration(job).moves[0].newcomer
    said = job.lose(lost)
    assert {pause.leaving for pause in of(commands.Pause, said)} == {(1,)}
    assert job.machine.state.holder(0).node == "n0"


def test_a_newcomer_that_does_not_finish_its_set_up_delays_no_other_move() -> None:
    job = drained(spares=2)
    ready(job, 1)
    said = job.submit(events.Expired("migration"))
    assert {pause.leaving for pause in of(commands.Pause, said)} == {(1,)}


@pytest.mark.parametrize("paused", [False, True])
def test_a_leaver_that_is_lost_calls_the_others_off(paused: bool) -> None:
    job = drained()
    newcomer = migration(job).moves[0].newcomer
    ready(job, *([] if paused else [0]))
    assert paused == (migration(job).stage is Stage.PAUSING)
    job.lose("w0")
    assert job.machine.state.migration is None
    assert job.machine.state.ranks[0] == newcomer, "it has set up for the rank"
    assert job.machine.state.ranks[1] == "w1"


def moving() -> Job:
    job = drained()
    ready(job)
    at_boundary(job)
    assert migration(job).stage is Stage.MOVING
    return job


def test_while_they_move_those_of_which_nothing_is_known_go_back() -> None:
    """The newcomer of rank 0 is verified; rank 2 is lost, and no rank has passed the boundary."""
    job = moving()
    first, second = migration(job).moves
    job.submit(events.Verified(first.newcomer, job.machine.state.generation, 3))
    assert migration(job).ranks == (1,)
    job.lose("w2")
    job.rest()
    assert job.machine.state.ranks[0] == first.newcomer
    assert job.machine.state.ranks[1] == second.leaver
    assert job.machine.state.migration is None


def test_while_they_move_and_others_are_beyond_the_boundary_all_have_moved() -> None:
    job = moving()
    moves = list(migration(job).moves)
    job.lose("w2")
    state = job.machine.state
    assert state.recovery is not None
    for name in sorted(state.recovery.waiting):
        place = Position(1, VotePhase.IDLE) if name in {move.leaver for move in moves} else Position(2, VotePhase.RUNNING)
        job.submit(events.Quiesced(name, state.generation, place, (), 1))
    assert state.migration is None
    assert [state.ranks[move.rank] for move in moves] == [move.newcomer for move in moves]


def test_both_of_a_pair_lost_while_they_move() -> None:
    """No rank has passed the boundary: the other rank goes back to its leaver, and a spare takes this one."""
    job = moving()
    first, second = migration(job).moves
    job.lose(first.leaver, first.newcomer)
    job.rest()
    state = job.machine.state
    assert state.migration is None and state.ranks[1] == second.leaver
    assert state.ranks[0] not in (first.leaver, first.newcomer) and job.node_of(state.ranks[0]) == "n2"
