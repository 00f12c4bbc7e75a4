"""What no scenario comes by: each test is here because a change of meaning had lived without it (`make mutants`)."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, moving, of
from tests.message_texts import has as said_so

from understudy.core import commands, events
from understudy.core.incident import OpenIncident
from understudy.core.machine import MOST_NOTICES, Machine
from understudy.core.migration import refusal
from understudy.core.model import BuddyCopyRef, JobSpec, LossCause, Position, Timeouts, VotePhase
from understudy.core.transitions import Phase, RefusalReason, WorkerState
from understudy.messages import disputes, forming, losses, moves, recoveries
from understudy.messages.base import Message


def killed(said: list[commands.Command]) -> dict[str, str]:
    return {command.worker: command.reason for command in of(commands.KillWorker, said)}


# -- ranks that there are not -----------------------------------------------------------------------------------------


def test_ranks_that_do_not_exist_count_against_no_replica() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    assert job.submit(events.ReplicasDiffer("w0", 0, (9,), (), "differs")) == []
    assert job.submit(events.ReplicasDiffer("w0", 0, (), ((9,), (-1, 7)), "differs")) == []
    assert job.machine.state.phase is Phase.TRAINING and job.machine.state.dispute is None
    assert list(killed(job.submit(events.ReplicasDiffer("w0", 0, (9, 1), (), "differs")))) == ["w1"]


def test_only_an_existing_rank_can_be_believed() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.ReplicasDiffer("w0", 0, (), ((0,), (1, 9)), "differs"))
    job.rest()
    assert not of(commands.KillWorker, job.submit(events.Believed(9, "")))
    assert list(killed(job.submit(events.Believed(0, "")))) == ["w1"]


def test_believing_one_does_not_replace_one_that_is_lost_already() -> None:
    job = Job(JobSpec("job", 2, 2, spares=0))
    job.submit(events.ReplicasDiffer("w0", 0, (), ((0,), (1,)), "differs"))
    job.lose("w1")
    job.rest()
    assert job.machine.state.ended is None, "it is held"
    (reported,) = of(commands.Tell, job.submit(events.Believed(1, "")))
    assert reported.text == disputes.CANNOT_BE_BELIEVED(rank=1, why=disputes.HOLDER_LOST(rank=1))
    (end,) = of(commands.EndJob, job.submit(events.Believed(0, "")))
    assert said_so(end.message, recoveries.NO_SPARE_LEFT) and job.machine.state.nodes["n0"].taint == ""


def test_a_dispute_ends_when_all_that_differ_are_lost() -> None:
    job = Job(JobSpec("job", 3, 3, spares=2))
    job.submit(events.ReplicasDiffer("w0", 0, (), ((0,), (1,)), "differs"))
    job.lose("w0", "w1")
    assert "w2" in {recover.worker for recover in of(commands.Recover, job.rest())}


# -- nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [True, False])
def test_a_node_that_is_trusted_again_gets_its_spare_unless_the_job_has_ended(ended: bool) -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    (spare,) = [worker.name for worker in job.machine.state.idle(WorkerState.WARM) if worker.node == "n0"]
    job.submit(events.NodeTainted("n0", "loud"))
    assert not [start for start in of(commands.StartWorker, job.lose(spare)) if start.node == "n0"]
    if ended:
        job.submit(events.StopAsked("enough", 0))
    started = of(commands.StartWorker, job.submit(events.NodeTainted("n0", "")))
    assert [start.node for start in started] == ([] if ended else ["n0"])


def test_a_node_of_ranks_that_is_lost_before_there_are_workers_ends_the_job_and_another_does_not() -> None:
    machine = Machine(JobSpec("job", 2, 1, nodes=2, spares=1), Timeouts())
    for number in (0, 2):
        machine.handle(events.NodeJoined(f"n{number}", "h", number, "", 1 if number == 2 else -1), 0.0)
    assert not of(commands.EndJob, machine.handle(events.NodesLost((events.LostNode("n2", "silent"),)), 1.0))
    (end,) = of(commands.EndJob, machine.handle(events.NodesLost((events.LostNode("n0", "silent"),)), 2.0))
    assert (end.exit_code, end.message) == (1, losses.NODE_LOST_EARLY(node="n0", detail="silent"))


def test_a_node_beyond_the_jobs_may_come_without_a_spare() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    assert job.submit(events.NodeJoined("n5", "h5", 5, "", 0)) == []
    assert "n5" in job.machine.state.nodes
    job.submit(events.NodeJoined("n6", "h6", 1, "", -1))
    assert "n6" not in job.machine.state.nodes, "one without ranks says how many spares it has"


def test_a_node_before_the_first_is_refused() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    (reported,) = of(commands.Tell, job.submit(events.NodeJoined("odd", "h", -1, "", 2)))
    assert reported.text == forming.NODE_RANK_TAKEN(node="odd", node_rank=-1) and "odd" not in job.machine.state.nodes


def test_a_place_is_given_once() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=1))
    (reported,) = of(commands.Tell, job.submit(events.NodeJoined("odd", "h", 1, "", 2)))
    assert reported.text == forming.NODE_RANK_TAKEN(node="odd", node_rank=1) and job.machine.state.places[1].name == "n1"


@pytest.mark.parametrize("back", [True, False])
def test_what_a_node_had_no_room_for_is_not_asked_of_it_while_it_is_lost_nor_when_it_is_back(back: bool) -> None:
    job = Job(JobSpec("job", 2, 2, spares=0), spares={0: 1, 1: 2})
    state = job.machine.state
    (old, _) = [worker.name for worker in state.idle(WorkerState.WARM) if worker.node == "n1"]
    (new,) = of(commands.StartWorker, job.lose(old))
    job.submit(events.StartRefused(new.worker, "n1", "no memory"))
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    if back:
        job.submit(events.NodeJoined("n1", "h1", 1, "", 2))
        job.warm()
    job.lose("w1")
    job.rest()
    job.verify()
    assert [start.node for start in of(commands.StartWorker, job.commit(1))] == ["n0"]


def test_a_spare_that_is_lost_in_an_incident_is_replaced_after_it() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2))
    newcomer = assigned(job.lose("w1")).worker
    job.rest()
    assert not of(commands.StartWorker, job.lose("w3" if newcomer == "w2" else "w2")), "warming takes time from the recovery"
    job.verify()
    assert len(of(commands.StartWorker, job.commit(1))) == 2


def test_a_spare_that_is_not_replaced_is_wanted_no_more_and_the_others_are() -> None:
    job = Job(JobSpec("job", 2, 2, spares=3, replenish=False))
    node = job.machine.state.nodes["n0"]
    assert node.spares == 3
    assert not of(commands.StartWorker, job.lose("w4"))
    assert node.spares == 2


def test_before_ranks_are_assigned_a_warm_spare_replaces_a_lost_worker() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2), forming=True)
    for name in ("w0", "w3"):
        job.submit(events.WorkerStarted(name, "n0", 1))
        job.submit(events.WorkerWarm(name, f"{name}:1"))
    said = job.lose("w1")
    assert {command.worker for command in of(commands.Assign, said)} == {"w0", "w3"}


# -- restarting all ranks --------------------------------------------------------------------------------------------------


def test_a_restart_of_all_ranks_clears_everything_under_way() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2), forming=True)
    job.warm()
    job.lose("w1")
    assert job.machine.state.recovery is not None
    job.lose("w0")
    state = job.machine.state
    assert state.restarts == 1
    assert not any([state.recovery, state.migration, state.dispute, state.crashes])


def test_a_job_without_restarts_left_reports_how_many_spares_would_have_helped() -> None:
    job = Job(JobSpec("job", 2, 2, spares=0, max_restarts=0), forming=True)
    job.warm()
    said = job.lose("w1")
    said += job.rest(0) if job.machine.state.recovery is not None else []
    (end,) = of(commands.EndJob, said)
    assert said_so(end.message, recoveries.NO_SPARE_LEFT, missing=1, spares=1)


def test_only_ranks_that_were_lost_stand_in_the_incident_of_a_new_start() -> None:
    job = Job(JobSpec("job", 2, 2, spares=0), forming=True)
    job.warm()
    job.lose("w1")
    job.rest(0) if job.machine.state.recovery is not None else None
    while starting := job.machine.state.idle(WorkerState.STARTING):
        if job.machine.state.restarts:
            break
        job.lose(starting[0].name)
    job.warm()
    incident = job.machine.state.incident
    assert incident is not None and job.machine.state.restarts == 1
    assert [lost.rank for lost in incident.ranks] == [1]
    assert incident.newcomers == [job.machine.state.ranks[1]]


def test_why_no_spare_can_take_a_rank() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1, prepared=1))
    assert refusal(job.machine.state, 1) == moves.ALL_PREPARED()
    job.submit(events.NodeJoined("n1", "h1", 1, "", 1))
    assert [worker.node for worker in job.machine.state.idle(WorkerState.STARTING)] == ["n1"]
    assert refusal(job.machine.state, 1) == moves.NO_SPARE_WARM()


# -- small rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"stop": 0.5}, {"quiesce": 0.9, "node_lost": 0.5, "heartbeat": 0.1}])
def test_limits_below_a_second(limits: dict[str, float]) -> None:
    Timeouts(**limits)
    for name in ("stop", "quiesce"):
        with pytest.raises(ValueError):
            Timeouts(**{**limits, name: 0.0})


def test_a_finished_and_lost_rank_is_needed_by_ranks_that_wait() -> None:
    """They are asked, and nothing is decided before they have answered."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.Finished("w1", 0))
    job.submit(events.WorkerLost("w1", LossCause.KILLED, "signal 9", job.now))
    said = job.submit(events.CommunicationBroken("w0", 0, "reset"))
    assert {command.worker for command in of(commands.Abort, said)} >= {"w0"}
    assert job.machine.state.phase is Phase.QUIESCING and not of(commands.Recover, said)
    assert not job.machine.state.workers["w1"].finished


def test_a_broken_connection_is_reported_once_and_only_in_its_generation() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    assert job.submit(events.CommunicationBroken("w0", 4, "reset")) == []
    assert job.submit(events.CommunicationBroken("w0", 0, "reset")) != []
    assert job.submit(events.CommunicationBroken("w1", 0, "reset")) == []
    refused = {("CommunicationBroken", RefusalReason.GENERATION): 1, ("CommunicationBroken", RefusalReason.AGAIN): 1}
    assert job.machine.state.refused == refused


def test_an_agent_that_comes_back_hears_of_the_rank_and_not_of_the_set_up_that_came_before_it() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1, prepared=1))
    assert job.machine.state.workers["w2"].prepare is not None
    assert assigned(job.lose("w0")).worker == "w2"
    said = job.submit(events.NodeJoined("n0", "h0", 0))
    assert of(commands.Assign, said) and not of(commands.Prepare, said)


def test_a_spare_in_the_middle_of_its_set_up_comes_after_one_that_has_not_begun() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=1))
    assert [worker.name for worker in job.machine.state.idle(WorkerState.WARM) if worker.prepare is not None] == ["w2"]
    assert assigned(job.lose("w0")).worker == "w3"


def test_a_rank_with_a_transaction_does_not_restart_because_another_has_none() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2), forming=True)
    job.warm()
    job.submit(events.Committed("w0", 0, 0, 1))
    job.lose("w0")
    job.submit(events.Quiesced("w1", 1, Position(0, VotePhase.VOTED), (BuddyCopyRef(0, 0),), 0))
    (end,) = of(commands.EndJob, job.lose("w1"))
    assert said_so(end.message, recoveries.NO_STATE_LEFT) and job.machine.state.restarts == 0


def test_an_unknown_worker_is_ended_and_its_name_is_not_reused() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    assert killed(job.submit(events.WorkerStarted("w9", "n0", 7))) == {"w9": "fenced"}
    assert job.machine.state.workers["w9"].state is WorkerState.LOST
    (start,) = of(commands.StartWorker, job.lose("w2"))
    assert start.worker == "w10"


# -- its messages ----------------------------------------------------------------------------------------------------


def test_an_incident_keeps_the_step_of_its_first_decision() -> None:
    job = Job(JobSpec("job", 3, 3, spares=2))
    job.lose("w2")
    job.rest(1)
    job.verify()
    state = job.machine.state
    job.submit(events.Committed("w0", state.generation, 1, 2))
    job.lose("w1")
    generation, copies = state.generation, tuple(BuddyCopyRef(rank, 1) for rank in range(3))
    assert state.recovery is not None
    for name in sorted(state.recovery.waiting):
        job.submit(events.Quiesced(name, generation, Position(2, VotePhase.IDLE), copies, 2))
    assert state.recovery.counted and job.machine.incidents()[-1].step == 1


def test_a_phase_of_no_incident_is_counted() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.PhaseDone("w0", 0, "redo", 0.0, 1.0))
    assert job.machine.state.refused == {("PhaseDone", RefusalReason.OVER): 1}


@pytest.mark.parametrize(
    ("worker", "rank", "message", "who"),
    [("w0", 0, losses.SCRIPT_FAILED, {"rank": 0, "worker": "w0", "node": "n0"}), ("w2", -1, losses.WORKER_FAILED, {"worker": "w2"})],
)
def test_who_failed_is_named(worker: str, rank: int, message: Message, who: dict[str, object]) -> None:
    """A spare without a rank, although it is prepared for one, is a worker."""
    job = Job(JobSpec("job", 2, 2, spares=1, prepared=1))
    assert job.machine.state.workers["w2"].prepare is not None
    (end,) = of(commands.EndJob, job.submit(events.ScriptFailed(worker, rank, 3, "OSError: the file is locked", "...")))
    assert end.message == message(**who, step=3, report="OSError: the file is locked\n...")


def test_a_finished_worker_reports_its_step() -> None:
    """The contents of pages may be lost with the orchestrator that had read them."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.Finished("w1", 0, 16))
    job.submit(events.Finished("w0", 0))
    assert [job.machine.state.workers[name].step for name in ("w0", "w1")] == [1, 16]


def test_a_node_that_is_lost_with_one_that_had_finished_and_one_that_had_not_takes_both() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=0), spares={2: 2})
    job.submit(events.Finished("w1", 0, 1))
    job.submit(events.NodesLost((events.LostNode("n0", "silent"),)))
    incident = job.machine.state.incident
    assert incident is not None
    assert [(part.rank, part.cause) for part in incident.ranks] == [(0, LossCause.NODE), (1, LossCause.NODE)]


def test_a_job_does_not_end_while_a_finished_rank_has_no_holder() -> None:
    """It is lost while the others quiesce: its work may have to be done again."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.lose("w2")
    job.submit(events.Finished("w1", 0, 1))
    job.submit(events.CommunicationBroken("w0", 0, "reset"))
    job.submit(events.Expired("communication"))
    job.lose("w1")
    assert not of(commands.EndJob, job.submit(events.Finished("w0", 0, 1)))


def test_a_rank_before_its_first_transaction_waits_for_a_spare_that_warms() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1), forming=True)
    job.warm()
    newcomer = assigned(job.lose("w1")).worker
    job.lose(newcomer)
    assert not of(commands.KillWorker, job.rest(0))
    assert job.machine.state.phase is Phase.QUIESCING and "hold" in job.machine.state.timers


def test_a_nodes_last_sign_of_life_is_the_moment_of_the_fault() -> None:
    for happened in (0.005, 0.0):
        job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
        job.submit(events.NodesLost((events.LostNode("n1", "silent", happened),)))
        assert job.machine.state.incident is not None and job.machine.state.incident.fault_at == (happened or job.machine.state.now)


def test_what_an_incident_notes_it_notes_once() -> None:
    incident = OpenIncident(1, False, 0.0, 0.0, "lost")
    for text in ("a", "b", "a"):
        incident.note(text)
    assert incident.notes == ["a", "b"]


def test_a_rank_that_is_repeatedly_lost_at_the_first_transaction_is_named() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, max_losses_per_transaction=1), forming=True)
    job.warm()
    job.lose("w1")
    (end,) = of(commands.EndJob, job.rest(0))
    assert said_so(end.message, recoveries.LOST_AGAIN, where="transaction 0")


# -- the end ----------------------------------------------------------------------------------------------------------


def test_ranks_do_not_restart_without_all_nodes() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), forming=True)
    job.warm()
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    said = job.submit(events.Quiesced("w0", 1, Position(0, VotePhase.RUNNING), (), 0))
    (end,) = of(commands.EndJob, said)
    assert end.exit_code == 1 and said_so(end.message, forming.NODES_MISSING) and not of(commands.StartWorker, said)


def test_a_released_worker_that_has_gone_is_lost_without_an_incident() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = moving(job)
    job.verify()
    assert of(commands.EndJob, job.commit(1)) == [] and job.machine.state.ranks[1] == newcomer
    left = job.machine.state.workers["w1"]
    seen = [left.state]
    assert killed(job.lose("w1")) == {}
    assert [*seen, left.state] == [WorkerState.RELEASED, WorkerState.LOST] and "w1" not in job.machine.state.nodes["n0"].workers
    assert len(job.machine.incidents()) == 1


def test_state_that_is_nowhere_ends_the_job() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    assert job.submit(events.Uncovered("w0", 7, "optimizer state of rank 1")) == []
    assert job.machine.state.refused == {("Uncovered", RefusalReason.GENERATION): 1}
    (end,) = of(commands.EndJob, job.submit(events.Uncovered("w0", 0, "optimizer state of rank 1")))
    assert (end.exit_code, end.message) == (1, recoveries.STATE_NOWHERE_ALONE(detail="optimizer state of rank 1"))


def test_an_answer_for_a_generation_that_is_over_is_counted() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.lose("w1")
    job.submit(events.Quiesced("w0", 0, Position(1, VotePhase.RUNNING), (), 1))
    assert job.machine.state.refused == {("Quiesced", RefusalReason.GENERATION): 1}
    assert job.machine.state.recovery is not None and job.machine.state.recovery.waiting == {"w0"}


def test_the_only_survivor_that_crashes_at_once_ends_the_job() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2))
    job.lose("w1")
    job.rest()
    said = job.submit(events.WorkerLost("w0", LossCause.CRASHED, "SIGSEGV", job.now))
    (end,) = of(commands.EndJob, said)
    assert "SIGSEGV" in end.message and said_so(end.message, losses.SURVIVORS_CRASH)


def test_a_job_fails_if_no_spare_warms_in_time() -> None:
    """And one that warms later takes no rank of a job that is over."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.lose("w1")).worker
    job.lose(newcomer)
    job.rest()
    (warming,) = job.machine.state.idle(WorkerState.STARTING)
    (end,) = of(commands.EndJob, job.submit(events.Expired("hold")))
    assert end.exit_code == 1 and said_so(end.message, recoveries.WAITED_FOR_SPARE, seconds=900.0)
    job.submit(events.WorkerStarted(warming.name, warming.node, 7))
    assert not of(commands.Assign, job.submit(events.WorkerWarm(warming.name, "n0:7000")))


def test_the_first_end_counts() -> None:
    state = Job(JobSpec("job", 2, 2, spares=1)).machine.state
    state.end(1, "first")
    state.end(0, "second")
    assert state.ended == commands.EndJob(1, "first") and of(commands.EndJob, state.out) == [state.ended]


def test_a_rank_that_cannot_be_started_ends_the_job_and_a_spare_does_not() -> None:
    job = Job(JobSpec("job", 1, 1, spares=1), forming=True)
    assert not of(commands.EndJob, job.submit(events.StartRefused("w1", "n0", "no room")))
    (end,) = of(commands.EndJob, job.submit(events.StartRefused("w0", "n0", "no room")))
    assert (end.exit_code, end.message) == (1, forming.WORKER_NOT_STARTED(node="n0", worker="w0", detail="no room"))


def test_nothing_is_started_on_a_node_that_comes_back_without_the_jobs_last_rank() -> None:
    job = Job(JobSpec("job", 1, 1, spares=1))
    job.lose("w1")
    assert job.machine.state.idle(WorkerState.STARTING)
    said = job.submit(events.NodeJoined("n0", "h0", 0, "", -1, ()))
    (end,) = of(commands.EndJob, said)
    assert not of(commands.StartWorker, said[said.index(end) :])


def test_so_many_notices_are_kept() -> None:
    job = Job(JobSpec("job", 1, 1, spares=0))
    for number in range(MOST_NOTICES + 1):
        reported = of(commands.Tell, job.submit(events.Notice("w0", -1, f"notice {number}")))
        assert len(reported) == (number < MOST_NOTICES)
    assert job.machine.state.refused == {("Notice", RefusalReason.LIMIT): 1} and len(job.machine.state.notices) == MOST_NOTICES
