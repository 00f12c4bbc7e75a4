"""One rule of the machine at a time, where a scenario would assert more than is meant."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, of
from tests.message_texts import has as said_so

from understudy.core import commands, events
from understudy.core.loss import MOST_NAMED
from understudy.core.model import Incident, JobSpec, LossCause, Position, Timeouts, VotePhase
from understudy.core.transitions import Phase, WorkerState
from understudy.messages import forming, loading, losses, moves, newcomers, recoveries
from understudy.messages.base import Message


def killed(said: list[commands.Command]) -> list[str]:
    return [command.worker for command in of(commands.KillWorker, said)]


# -- workers that do not come through ---------------------------------------------------------------------------------


def test_spares_that_die_before_they_are_warm_are_not_started_for_ever() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1, max_restarts=3))
    starts = of(commands.StartWorker, job.lose("w2"))
    count = 0
    while starts:
        count += 1
        assert count < 20, "it starts them for ever"
        starts = of(commands.StartWorker, job.lose(starts[0].worker))
    assert count == 4, "as many as it may be restarted, and one"
    assert job.machine.state.phase is Phase.TRAINING, "the job goes on without a spare"


def test_one_that_comes_through_in_between_makes_the_node_good_again() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1, max_restarts=1))
    for _ in range(5):
        (first,) = of(commands.StartWorker, job.lose(job.machine.state.idle(WorkerState.WARM)[0].name))
        assert len(of(commands.StartWorker, job.lose(first.worker))) == 1
        job.warm()


def test_ranks_that_die_before_they_are_warm_end_the_job_and_name_the_node() -> None:
    job = Job(JobSpec("job", 1, 1, spares=0, max_restarts=2), forming=True)
    said = []
    for number in range(3):
        said = job.lose(f"w{number}")
    (end,) = of(commands.EndJob, said)
    assert (end.exit_code, end.message) == (1, forming.LOST_BEFORE_WARM(node="n0", detail="signal 9"))


def test_only_a_node_with_ranks_is_missed_before_training_begins() -> None:
    job = Job(JobSpec("job", 1, 1, spares=0), spares={1: 1}, forming=True)
    assert of(commands.EndJob, job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))) == []
    (end,) = of(commands.EndJob, job.submit(events.NodesLost((events.LostNode("n0", "silent"),))))
    assert end.message == forming.LOST_BEFORE_WARM(node="n0", detail="silent")


def test_a_spare_takes_the_place_of_a_rank_that_dies_before_it_is_warm() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1), forming=True)
    job.submit(events.WorkerWarm("w2", "n0:7000"))
    said = job.lose("w0")
    assert [command.spare for command in of(commands.StartWorker, said)] == [True], "a spare instead of the one that takes a rank"
    given = of(commands.Assign, job.warm())
    assert [(one.worker, one.rank) for one in given] == [("w1", 0), ("w2", 1)]


def test_a_refused_spare_is_refused_once() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2))
    (new,) = of(commands.StartWorker, job.lose("w3"))
    job.submit(events.StartRefused(new.worker, "n0", "no memory"))
    node = job.machine.state.nodes["n0"]
    assert (node.spares, node.refused) == (1, 1)
    assert job.submit(events.StartRefused(new.worker, "n0", "no memory")) == []
    assert (node.spares, node.refused) == (1, 1), "said twice, meant once"
    assert of(commands.StartWorker, job.lose("w2")) != [], "one spare is still wanted"


def test_what_was_refused_is_asked_for_again_after_the_next_incident() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2))
    (new,) = of(commands.StartWorker, job.lose("w3"))
    job.submit(events.StartRefused(new.worker, "n0", "no memory"))
    job.lose("w1")
    job.rest()
    job.verify()
    after = of(commands.StartWorker, job.commit(1))
    assert [one.spare for one in after] == [True, True], "the one that was used, and the one that had no room"
    assert job.machine.state.nodes["n0"].refused == 0


# -- incidents --------------------------------------------------------------------------------------------------------


def incident(job: Job) -> Incident:
    return job.machine.incidents()[-1]


def test_a_phase_outside_of_an_incident_is_ignored() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    assert job.submit(events.PhaseDone("w0", 0, "redo", 0.0, 1.0)) == []
    assert job.machine.incidents() == []
    job.lose("w1")
    job.submit(events.PhaseDone("w0", 0, "redo", job.now, 1.0))
    assert "redo" not in {span.phase for span in incident(job).spans}, "it is of a generation that is over"
    job.submit(events.PhaseDone("w0", 1, "redo", job.now, 1.0))
    assert "redo" in {span.phase for span in incident(job).spans}


def test_a_newcomers_set_up_counts_also_if_a_second_loss_has_ended_its_generation() -> None:
    job = Job(JobSpec("job", 3, 3, spares=2))
    newcomer = assigned(job.lose("w1")).worker
    job.lose("w2")
    job.submit(events.PhaseDone(newcomer, 1, "setup", job.now, 0.5, 100))
    assert incident(job).bytes_moved == 100 and "setup" in {span.phase for span in incident(job).spans}


def test_bytes_are_those_of_newcomers() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.lose("w1")).worker
    for worker in ("w0", newcomer):
        job.submit(events.PhaseDone(worker, 1, "transfer", job.now, 0.5, 100))
    assert incident(job).bytes_moved == 100


def test_the_last_one_to_end_gives_a_phase_its_time() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.lose("w1")).worker
    began = job.now
    for worker, seconds in (("w0", 1.0), (newcomer, 3.0), ("w0", 2.0)):
        job.submit(events.PhaseDone(worker, 1, "transfer", began, seconds))
    (span,) = [span for span in incident(job).spans if span.phase == "transfer"]
    assert span.seconds == 3.0
    assert incident(job).seconds == -1.0, "open"


def test_a_fault_cannot_be_later_than_what_is_known_of_it() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.WorkerLost("w1", LossCause.KILLED, "signal 9", job.now + 100))
    assert incident(job).fault_at == job.now, "its host's clock is ahead"


# -- the limits of the job ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause, word", [(LossCause.KILLED, "was lost 2 times"), (LossCause.NODE, "")])
def test_the_same_rank_lost_again_and_again_at_one_transaction(cause: LossCause, word: str) -> None:
    job = Job(JobSpec("job", 3, 3, spares=3, max_losses_per_transaction=2))
    said = []
    for _ in range(2):
        job.submit(events.WorkerLost(job.machine.state.ranks[2], cause, "gone", job.now))
        said = job.rest()
        job.verify()
    assert [word in end.message for end in of(commands.EndJob, said)] == ([True] if word else [])


@pytest.mark.parametrize(
    ("detail", "message"),
    [
        ("moment differs", recoveries.UNVERIFIED_AGAIN),
        (newcomers.DIGESTS_DIFFER(rank=2, wrong=1, count=9, entries="moment"), recoveries.UNVERIFIED_AGAIN),
        (loading.OTHER_BATCH(rank=2, iteration=4, found=1, wanted=2), recoveries.UNLIKE_AGAIN),
    ],
)
def test_a_newcomer_that_repeatedly_does_not_verify_is_the_scripts_fault_if_it_reports_that(detail: str, message: Message) -> None:
    job = Job(JobSpec("job", 3, 3, spares=3, max_losses_per_transaction=2))
    job.lose("w2")
    said: list[commands.Command] = []
    for _ in range(2):
        job.rest()
        newcomer = job.machine.state.ranks[2]
        job.submit(events.VerifyFailed(newcomer, job.machine.state.generation, str(detail)))
        said = job.rest()
    (end,) = of(commands.EndJob, said)
    assert said_so(end.message, message, rank=2, times=2)


def test_a_newcomer_of_a_migration_that_is_lost_is_no_loss_of_its_rank() -> None:
    """Its rank has a holder, who is well."""
    job = Job(JobSpec("job", 3, 3, spares=1, max_losses_per_transaction=1))
    newcomer = assigned(job.submit(events.MigrationAsked(0, "drain"))).worker
    job.submit(events.NewcomerReady(newcomer, 1))
    assert job.machine.state.recovery is not None, "all reach the boundary"
    said = job.lose(newcomer) + job.rest() + job.commit(1)
    assert of(commands.EndJob, said) == [] and job.machine.state.ranks[0] == "w0" and job.machine.state.phase is Phase.TRAINING


def test_state_that_is_nowhere_before_the_first_transaction_was_never_trained() -> None:
    """The set-up is done, and two ranks are lost with the only copies of their state: all restart, and nothing is lost by that."""
    job = Job(JobSpec("job", 4, 4, spares=2), forming=True)
    job.warm()
    job.lose("w2", "w3")
    state = job.machine.state
    said = []
    for worker in ("w0", "w1"):
        said += job.submit(events.Quiesced(worker, state.generation, Position(0, VotePhase.RUNNING), (), 0))
    assert of(commands.EndJob, said) == [] and len(of(commands.StartWorker, said)) >= 4 and state.restarts == 1


@pytest.mark.parametrize("count", [MOST_NAMED, MOST_NAMED + 1])
def test_what_is_left_out_of_a_reason_is_counted(count: int) -> None:
    job = Job(JobSpec("job", count + 1, 1, nodes=count + 1, spares=0))
    gone = tuple(events.LostNode(f"n{number}", "silent") for number in range(1, count + 1))
    said = " ".join(map(repr, job.submit(events.NodesLost(gone))))
    assert ("; and 1 more" in said) == (count > MOST_NAMED) and "and 0 more" not in said


@pytest.mark.parametrize("name", ["quiesce", "stop", "beat"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Timeouts(**{name: 0.0})


def test_a_start_before_the_first_transaction_is_tried_as_often_as_it_may() -> None:
    job = Job(JobSpec("job", 1, 1, spares=0, max_restarts=2), forming=True)
    for _ in range(2):
        job.warm()
        assert of(commands.EndJob, job.lose(job.machine.state.ranks[0])) == []
    job.warm()
    (end,) = of(commands.EndJob, job.lose(job.machine.state.ranks[0]))
    assert said_so(end.message, forming.STARTED_TOO_OFTEN, restarts=2, most=2)


def test_communication_that_breaks_without_a_loss_has_an_end() -> None:
    job = Job(JobSpec("job", 2, 2, spares=0))
    said: list[commands.Command] = []
    for count in range(1, 5):
        generation = job.machine.state.generation
        job.submit(events.CommunicationBroken("w0", generation, "reset"))
        job.submit(events.Expired("communication"))
        said = job.rest()
        assert bool(of(commands.EndJob, said)) == (count == 4), count
    assert said_so(of(commands.EndJob, said)[0].message, recoveries.BREAKS_AGAIN, times=4, transaction=1)


def test_an_explanation_is_waited_for_as_long_as_a_node_needs_to_be_lost_and_longer_the_second_time() -> None:
    job = Job(JobSpec("job", 2, 2, spares=0))
    limits = Timeouts()
    (first,) = of(commands.SetTimer, job.submit(events.CommunicationBroken("w0", 0, "reset")))
    assert (first.timer, first.seconds) == ("communication", 2 * limits.node_lost + 1)
    assert job.submit(events.CommunicationBroken("w1", 0, "reset")) == [], "it is known"
    job.submit(events.Expired("communication"))
    job.rest()
    (second,) = of(commands.SetTimer, job.submit(events.CommunicationBroken("w0", 1, "reset")))
    assert second.seconds > first.seconds


# -- repeated and late events ------------------------------------------------------------------------------------------


def test_a_timer_that_was_not_set_means_nothing() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    for timer in ("quiesce", "hold", "resume", "communication", "migration", "prepare"):
        assert job.submit(events.Expired(timer)) == []
    assert job.machine.state.phase is Phase.TRAINING


def test_an_unknown_worker_with_a_number_is_ended_and_its_name_is_not_reused() -> None:
    job = Job(JobSpec("job", 2, 2, spares=0))
    assert killed(job.submit(events.WorkerStarted("w7", "n0", 55))) == ["w7"]
    job.submit(events.NodeJoined("n1", "h1", 1, spares=1))
    assert list(job.machine.state.nodes["n1"].workers) == ["w8"]


def test_the_first_end_counts() -> None:
    job = Job(JobSpec("job", 2, 2, spares=0))
    (end,) = of(commands.EndJob, job.submit(events.StopAsked("enough", 3)))
    assert end.exit_code == 3
    assert job.submit(events.ScriptFailed("w0", 0, 1, "ValueError", "...")) == []
    assert job.machine.state.ended == end


# -- what walks in any order have found --------------------------------------------------------------------------------


def test_a_restart_clears_broken_communication() -> None:
    """Else the next break would count as known, no timer would run, and everybody would wait."""
    job = Job(JobSpec("job", 2, 2, spares=2), forming=True)
    job.warm()
    job.submit(events.CommunicationBroken("w0", 0, "reset"))
    job.lose("w0", "w1")
    job.warm()
    holder = job.machine.state.ranks[0]
    again = of(commands.SetTimer, job.submit(events.CommunicationBroken(holder, job.machine.state.generation, "reset")))
    assert [timer.timer for timer in again] == ["communication"]


def test_no_rank_moves_while_communication_is_broken() -> None:
    """A worker that waits for the reason reaches no boundary."""
    job = Job(JobSpec("job", 3, 3, spares=1))
    job.submit(events.CommunicationBroken("w1", 0, "reset"))
    assert job.machine.migration_refusal(0) == moves.NOT_SETTLED()


def test_a_rank_that_was_about_to_move_stays_if_communication_breaks() -> None:
    job = Job(JobSpec("job", 3, 3, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(0, "drain"))).worker
    job.submit(events.CommunicationBroken("w1", 0, "reset"))
    assert job.submit(events.NewcomerReady(newcomer, 1)) == []
    said = job.submit(events.Expired("communication"))
    assert killed(said) == [newcomer] and len(of(commands.Abort, said)) == 3
    assert job.machine.state.migration is None and job.machine.state.ranks[0] == "w0"


def test_a_newcomer_without_a_recover_cannot_report() -> None:
    """Also one that names the generation before all others."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(0, "drain"))).worker
    for event in (events.Verified(newcomer, -1, 3), events.VerifyFailed(newcomer, -1, "differs"), events.Finished(newcomer, -1)):
        assert job.submit(event) == []
    assert job.machine.state.workers[newcomer].state is WorkerState.NEWCOMER


def test_a_rank_that_waits_for_a_spare_waits_with_a_limit_also_for_one_of_a_node_that_comes_back() -> None:
    job = Job(JobSpec("job", 3, 3, spares=0), spares={1: 1})
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    job.lose("w0")
    assert "hold" not in job.machine.state.timers, "there is nothing to wait for yet"
    said = job.submit(events.NodeJoined("n1", "h1", 1, spares=1))
    assert len(of(commands.StartWorker, said)) == 1
    assert "hold" in [timer.timer for timer in of(commands.SetTimer, said)]
    assert assigned(job.warm()).rank == 0


@pytest.mark.parametrize("code, jobs", [(7, 7), (1, 1), (0, 1)])
def test_the_job_ends_with_the_exit_code_of_its_script_and_never_well_because_of_one_that_failed(code: int, jobs: int) -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    (ended,) = of(commands.EndJob, job.submit(events.ScriptFailed("w1", 1, 4, "ValueError", "...", code)))
    assert ended.exit_code == jobs
    assert ended.message == losses.SCRIPT_FAILED(rank=1, worker="w1", node="n0", step=4, report="ValueError\n...")
