"""Whose fault a device error is: each row of the table in `core/device_faults.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.core_job import Job, assigned, of
from tests.outcomes import shows

from understudy.core import commands, events
from understudy.core.model import JobSpec, LossCause, Position, VotePhase
from understudy.core.state import DEVICE
from understudy.core.transitions import Phase, WorkerState
from understudy.messages import losses

ECC, ILLEGAL = "ECCUncorrectable (214)", "IllegalAddress (700)"


def failed(worker: str, rank: int, transaction: int = 1, error: str = ECC, device: str = "gpu1") -> events.DeviceFailed:
    """Certain, blamed."""
    return events.DeviceFailed(worker, rank, transaction, transaction, error, True, True, device, 0.0, "it failed", "Traceback")


def suspect(worker: str, rank: int, transaction: int = 1, error: str = ILLEGAL, device: str = "gpu1") -> events.DeviceFailed:
    return replace(failed(worker, rank, transaction, error, device), certain=False)


def recovered(job: Job, transaction: int = 1) -> str:
    """The newcomer has its rank, and everybody redoes the transaction; its name."""
    job.rest(transaction)
    (newcomer,) = job.machine.state.newcomers()
    job.verify()
    return newcomer.name


def taints(job: Job) -> set[tuple[str, str]]:
    """Node and part of what is tainted for a device error."""
    nodes = job.machine.state.nodes.values()
    return {(node.name, part) for node in nodes for source, part in (*node.taints, *node.device_taints) if source == DEVICE}


def ended(said: list[commands.Command]) -> str:
    found = of(commands.EndJob, said)
    return str(found[0].message) if found else ""


@pytest.mark.parametrize("event", [failed("w1", 1), suspect("w1", 1)], ids=["certain", "suspect"])
def test_a_device_error_is_a_loss_and_taints_the_device(event: events.DeviceFailed) -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    said = job.submit(event)
    assert [kill.worker for kill in of(commands.KillWorker, said)] == ["w1"], "it is fenced, if it cannot end by itself"
    assert assigned(said).rank == 1 and taints(job) == {("n0", "gpu1")} and not ended(said)
    (incident,) = job.machine.incidents()
    assert [part.cause for part in incident.ranks] == [LossCause.DEVICE]


def test_a_rank_whose_device_failed_is_no_donor() -> None:
    job = Job(JobSpec("job", 3, 3, spares=1))
    job.submit(failed("w1", 1))
    late = job.submit(events.Quiesced("w1", 1, Position(1, VotePhase.VOTED), (), 1))
    assert late == [] and "w1" not in {worker.name for worker in job.machine.state.members()}


def test_the_newcomer_does_not_get_the_place_of_the_device_that_failed() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    taken = assigned(job.submit(failed("w1", 1)))
    assert taken.environment["LOCAL_RANK"] == "2", "1 is where the script would go to gpu1 again"
    again = Job(JobSpec("job", 2, 2, spares=1))
    assert assigned(again.lose("w1")).environment["LOCAL_RANK"] == "1"


def test_a_spare_that_is_prepared_for_that_place_is_not_chosen() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=2))
    state = job.machine.state
    ready: dict[int, str] = {}
    for _ in range(2):
        (sets_up,) = [one for one in state.idle(WorkerState.WARM) if one.prepare is not None and not one.ready]
        assert sets_up.prepare is not None
        ready[sets_up.prepare.rank] = sets_up.name
        job.submit(events.Prepared(sets_up.name, sets_up.prepare.rank))
    assert state.workers[ready[1]].local_rank == 1
    job.submit(failed("w1", 1))
    assert state.holder(1).name not in ready.values()


@shows("the same error of the same rank at the same transaction, on another device")
@pytest.mark.parametrize("event", [failed, suspect])
def test_the_same_error_on_the_newcomers_device_is_the_scripts(event: object) -> None:
    said_by = failed if event is failed else suspect
    job = Job(JobSpec("job", 2, 2, spares=3))
    job.submit(said_by("w1", 1))
    newcomer = recovered(job)
    said = job.submit(said_by(newcomer, 1, device="gpu2"))
    before = "rank 1 (gpu1 of node n0)"
    figures = {"rank": 1, "worker": newcomer, "node": "n0", "step": 1, "error": said_by("", 1).error, "before": before}
    assert ended(said) == losses.SAME_ON_ANOTHER_DEVICE(**figures, report="it failed\nTraceback")
    assert taints(job) == set(), "nothing speaks against the devices any more"
    assert of(commands.Assign, said) == [], "no further spare is burnt"


@pytest.mark.parametrize(
    "second",
    [
        failed("", 1, device="gpu1"),
        failed("", 1, transaction=2, device="gpu2"),
        failed("", 1, error="DevicesUnavailable (46)", device="gpu2"),
    ],
    ids=["the same device", "a later transaction", "another error"],
)
def test_anything_else_of_the_newcomer_is_its_devices(second: events.DeviceFailed) -> None:
    job = Job(JobSpec("job", 2, 2, spares=3))
    job.submit(failed("w1", 1))
    newcomer = recovered(job)
    for transaction in range(1, second.transaction):
        job.commit(transaction)
    said = job.submit(replace(second, worker=newcomer))
    assert not ended(said) and assigned(said).rank == 1
    assert taints(job) >= {("n0", "gpu1"), ("n0", second.device)}


@shows("an error of the hardware, the driver or a disk; or one that the script may have caused")
def test_a_disk_is_the_nodes_and_one_for_all_its_ranks() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=4))
    job.submit(events.UsesDevice("w0", "gpu0"))
    disk = replace(failed("w0", 0, error="EIO", device="disk"), computes=False)
    assert assigned(job.submit(disk)).rank == 0
    node = job.machine.state.nodes["n0"]
    assert set(node.taints) == {(DEVICE, "disk")} and node.device_taints == {}, "not the GPU of that rank"
    assert not ended(job.submit(replace(disk, worker="w1", rank=1)))
    assert set(node.taints) == {(DEVICE, "disk")}, "two ranks with one disk are no two devices"


def test_a_worker_s_own_report_of_its_device_counts() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.UsesDevice("w1", "gpu6"))
    job.submit(failed("w1", 1, device="gpu1"))
    assert taints(job) == {("n0", "gpu6")}


def test_without_a_known_device_each_worker_counts_as_one() -> None:
    job = Job(JobSpec("job", 2, 2, spares=3))
    job.submit(failed("w1", 1, device=""))
    assert taints(job) == set()
    assert ended(job.submit(failed(recovered(job), 1, device="")))


@shows(
    "an error that the script may have caused, in two ranks at one transaction, on two nodes or on the only node with ranks",
    "the script's fault, as above",
)
def test_two_ranks_with_the_same_uncertain_error_at_one_transaction_are_the_scripts_on_two_nodes() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    assert not ended(job.submit(suspect("w0", 0, device="gpu0")))
    said = job.submit(suspect("w1", 1, device="gpu0"))
    assert ended(said) and taints(job) == set()


def test_two_ranks_with_a_certain_error_are_two_devices_on_two_nodes() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=4))
    job.submit(failed("w0", 0, device="gpu0"))
    said = job.submit(failed("w3", 3, device="gpu1"))
    assert not ended(said) and taints(job) == {("n0", "gpu0"), ("n1", "gpu1")}


@shows("device errors of two ranks of a node within a step, on different devices, unless they are the script's fault (rows below)")
@pytest.mark.parametrize("apart, suspected", [(0, True), (1, True), (2, False)])
def test_two_ranks_of_a_node_within_a_step_speak_against_the_node(apart: int, suspected: bool) -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=4))
    job.submit(failed("w0", 0, device="gpu0"))
    said = job.submit(failed("w1", 1, transaction=1 + apart, error="NoDevice (100)", device="gpu1"))
    assert not ended(said)
    assert taints(job) == {("n0", "gpu0"), ("n0", "gpu1"), *([("n0", "")] if suspected else [])}


@shows(
    "an error that comes from the loss of a peer (NCCL, memory shared over NVLink)",
    "the ranks recover together; no device is blamed",
)
def test_a_consequence_of_the_loss_of_a_peer_is_blamed_on_no_device() -> None:
    job = Job(JobSpec("job", 3, 3, spares=3))
    job.lose("w0")
    said = job.submit(replace(suspect("w1", 1), blamed=False))
    assert assigned(said).rank == 1 and taints(job) == set() and job.machine.state.failed_devices == []


@shows(
    "a device error in the setup of the first ranks",
    "all ranks start again (`--max-restarts`), the device tainted",
)
def test_in_the_set_up_all_restart() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1), forming=True)
    job.warm()
    job.submit(failed("w1", 1, transaction=-1))
    job.submit(events.Quiesced("w0", job.machine.state.generation, Position(-1, VotePhase.RUNNING), (), 0))
    assert job.machine.state.restarts == 1 and taints(job) == {("n0", "gpu1")}


@shows(
    "a device error in a spare that is being prepared, or in a drill",
    "the spare is replaced, its device tainted; the rank is not affected and stays where it is",
)
def test_of_a_spare_that_sets_up_ahead_nothing_but_itself_is_lost() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1, prepared=1))
    (spare,) = job.machine.state.idle(WorkerState.WARM)
    said = job.submit(failed(spare.name, 0, transaction=-1, device="gpu2"))
    assert job.machine.incidents() == [] and job.machine.state.phase is Phase.TRAINING
    assert taints(job) == {("n0", "gpu2")} and len(of(commands.StartWorker, said)) == 1


@shows("a device error in a spare that is being prepared, or in a drill")
def test_a_failure_of_a_drill_s_spare_does_not_concern_the_rank() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.DrillAsked(1, "asked"))
    (spare,) = [worker for worker in job.machine.state.workers.values() if worker.state is WorkerState.DRILLING]
    job.submit(failed(spare.name, 1, device="gpu2"))
    (drill,) = job.machine.state.drills
    assert drill.verdict == "broken" and job.machine.incidents() == []


def test_a_leaver_whose_device_fails_is_a_loss_and_its_newcomer_takes_the_rank() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(1, "asked"))).worker
    job.submit(failed("w1", 1))
    assert job.machine.state.holder(1).name == newcomer and job.machine.state.migration is None


def test_it_is_the_scripts_also_if_the_same_device_failed_twice_before() -> None:
    job = Job(JobSpec("job", 2, 2, spares=3))
    job.submit(failed("w1", 1, device="gpu1"))
    job.submit(failed(recovered(job), 1, device="gpu1"))
    assert ended(job.submit(failed(recovered(job), 1, device="gpu3")))


@shows("device errors of two ranks of a node within a step, on different devices, unless they are the script's fault (rows below)")
def test_two_ranks_of_one_node_with_the_same_uncertain_error_speak_against_the_node_where_another_has_ranks() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=4))
    job.submit(suspect("w0", 0, device="gpu0"))
    said = job.submit(suspect("w1", 1, device="gpu1"))
    assert not ended(said) and taints(job) == {("n0", "gpu0"), ("n0", "gpu1"), ("n0", "")}
