"""A migration that is disturbed while its newcomers set up: which moves are called off, and how long the others may take."""

from __future__ import annotations

from tests.core.core_job import Job, of

from understudy.core import commands, events
from understudy.core.model import JobSpec
from understudy.core.state import Migration


def leaving(spares: dict[int, int]) -> Job:
    """Ranks 0 and 1 are on n0, which is to be left, ranks 2 and 3 on n1; their newcomers set up."""
    job = Job(JobSpec("job", 4, 2, 2, 0, replenish=False), spares={0: 0, 1: 0, **spares})
    job.submit(events.NodeTainted("n0", "it is to be patched", "drain", leave=True))
    assert migration(job).ranks == (0, 1)
    return job


def migration(job: Job) -> Migration:
    found = job.machine.state.migration
    assert found is not None
    return found


def timers(said: list[commands.Command]) -> list[commands.SetTimer]:
    return [timer for timer in of(commands.SetTimer, said) if timer.timer == "migration"]


def test_the_loss_of_one_newcomer_gives_the_others_no_more_time() -> None:
    job = leaving({2: 2})
    said = job.lose(migration(job).moves[0].newcomer)
    assert migration(job).ranks == (1,) and timers(said) == []


def test_newcomers_that_wait_for_a_broken_communication_to_be_explained_have_a_limit_again() -> None:
    job = leaving({2: 2})
    first, second = migration(job).moves
    job.submit(events.NewcomerReady(first.newcomer, migration(job).generation))
    job.submit(events.CommunicationBroken("w2", 0, "reset"))
    said = job.submit(events.Expired("migration"))
    assert [kill.worker for kill in of(commands.KillWorker, said)] == [second.newcomer]
    assert migration(job).ranks == (0,)
    assert timers(said) == [commands.SetTimer("migration", job.machine.state.timeouts.hang_first)]


def test_a_rank_that_is_lost_together_with_a_newcomer_calls_every_move_off() -> None:
    job = leaving({1: 1, 2: 1})
    newcomers = {move.newcomer for move in migration(job).moves}
    assert {job.node_of(name) for name in newcomers} == {"n1", "n2"}
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    state = job.machine.state
    assert state.migration is None and [state.ranks[rank] for rank in (0, 1)] == ["w0", "w1"]
