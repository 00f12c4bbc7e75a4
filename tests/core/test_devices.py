"""A taint of one device of a node concerns the ranks on it, and no others."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, moving, of

from understudy.core import commands, events
from understudy.core.model import JobSpec
from understudy.core.state import DRAIN, OPERATOR
from understudy.core.transitions import WorkerState
from understudy.messages import moves


def seen(part: str, node: str = "n0", source: str = "nvml", *, leave: bool = False, until: float = 0.0) -> events.NodeTainted:
    return events.NodeTainted(node, "it is hot", source, part, until, leave)


def over(part: str, node: str = "n0", source: str = "nvml") -> events.NodeTainted:
    return events.NodeTainted(node, "", source, part)


def known(spec: JobSpec) -> Job:
    """Every rank has reported on which device it computes: the one of its local rank."""
    job = Job(spec)
    for worker in job.machine.state.members():
        number = worker.local_rank
        job.submit(events.UsesDevice(worker.name, f"gpu{number}", (f"GPU-{number}", f"0000:{number:02x}:00.0")))
    return job


def moves_of(said: list[commands.Command]) -> list[int]:
    return [command.rank for command in of(commands.Assign, said)]


def reported(said: list[commands.Command]) -> list[str]:
    return [command.text for command in of(commands.Tell, said)]


@pytest.mark.parametrize("part", ["gpu1", "GPU-1", "0000:01:00.0"])
def test_only_the_rank_on_the_device_leaves_it(part: str) -> None:
    job = known(JobSpec("job", 4, 4, spares=4))
    said = job.submit(seen(part, leave=True))
    assert moves_of(said) == [1] and moves.DEVICE_TAINTED(device="gpu1", node="n0", reason="it is hot") in [
        t.text for t in of(commands.Tell, said)
    ]
    node = job.machine.state.nodes["n0"]
    assert node.taint == "" and job.machine.state.trusted(node), "its other devices are as good as before"


def test_the_newcomer_may_be_on_the_same_node_and_gets_another_device() -> None:
    job = known(JobSpec("job", 2, 2, spares=1))
    assert assigned(job.submit(seen("gpu1", leave=True))).environment["LOCAL_RANK"] == "2"


def test_a_rank_that_has_moved_is_not_asked_to_move_again() -> None:
    job = known(JobSpec("job", 2, 2, spares=2))
    job.submit(seen("gpu1", leave=True))
    newcomer = job.machine.state.migration.moves[0].newcomer if job.machine.state.migration else ""
    job.submit(events.NewcomerReady(newcomer, job.machine.state.highest_announced_generation))
    job.rest()
    job.verify()
    job.submit(events.UsesDevice(newcomer, "gpu2"))
    assert moves_of(job.commit(1)) == [] and job.machine.state.holder(1).name == newcomer
    assert job.machine.state.migration is None


@pytest.mark.parametrize("part", ["nvme0n1", "eth0", "gpu7", ""])
def test_a_part_on_which_no_rank_is_known_speaks_of_the_node(part: str) -> None:
    job = known(JobSpec("job", 4, 2, nodes=2, spares=4))
    job.submit(seen(part))
    assert job.machine.state.nodes["n0"].taint == "it is hot"


def test_a_taint_that_does_not_ask_to_leave_keeps_newcomers_away() -> None:
    job = known(JobSpec("job", 2, 2, spares=1))
    assert moves_of(job.submit(seen("gpu1"))) == []
    assert assigned(job.lose("w1")).environment["LOCAL_RANK"] == "2"


def test_a_spare_that_has_set_up_on_the_device_is_started_over() -> None:
    job = known(JobSpec("job", 2, 2, spares=1, prepared=1))
    state = job.machine.state
    (spare,) = state.idle(WorkerState.WARM)
    assert spare.local_rank == 0
    job.submit(events.Prepared(spare.name, 0))
    said = job.submit(seen("gpu0"))
    assert [kill.worker for kill in of(commands.KillWorker, said)] == [spare.name] and len(of(commands.StartWorker, said)) == 1
    job.warm()
    (again,) = state.idle(WorkerState.WARM)
    assert again.prepare is not None and again.local_rank not in (0, 1)


def test_it_ends_by_itself_by_its_source_and_by_a_person() -> None:
    job = known(JobSpec("job", 2, 2, spares=1))
    node = job.machine.state.nodes["n0"]
    job.submit(seen("gpu1", until=job.now + 5))
    job.now += 6
    said = job.submit(events.Expired("taint"))
    assert node.device_taints == {} and moves.DEVICE_TRUSTED_AGAIN(device="gpu1", node="n0") in reported(said)
    job.submit(seen("gpu1"))
    job.submit(over("gpu0"))
    assert len(node.device_taints) == 1, "that was another device"
    job.submit(over("gpu1"))
    assert node.device_taints == {}
    for part, left in (("GPU-1", 1), ("", 0)):
        job.submit(seen("gpu0"))
        job.submit(seen("gpu1"))
        job.submit(over(part, source=OPERATOR))
        assert len(node.device_taints) == left, "a person names the device, by whichever name, or means all"


def test_a_person_who_trusts_a_device_does_not_trust_the_node() -> None:
    job = known(JobSpec("job", 4, 2, nodes=2, spares=4))
    node = job.machine.state.nodes["n0"]
    job.submit(seen(""))
    job.submit(seen("gpu1"))
    job.submit(over("gpu1", source=OPERATOR))
    assert node.device_taints == {} and node.taint == "it is hot" and node.trusted_at == 0.0


def test_a_taint_from_before_a_rank_was_known_there_stays_with_the_node() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=4))
    job.submit(seen("gpu0"))
    job.submit(events.UsesDevice("w0", "gpu0"))
    job.submit(seen("gpu0"))
    node = job.machine.state.nodes["n0"]
    assert set(node.taints) == {("nvml", "gpu0")} and node.device_taints == {}
    job.submit(over("gpu0"))
    assert node.taints == {}


def asked(rank: int, to: str, device: str = "") -> events.MigrationAsked:
    return events.MigrationAsked(rank, "asked", to, device)


def test_an_operator_chooses_node_and_device() -> None:
    job = known(JobSpec("job", 2, 1, nodes=2, spares=4))
    to_usual = assigned(known(JobSpec("job", 2, 1, nodes=2, spares=4)).submit(asked(0, "n1")))
    assert job.node_of(to_usual.worker) == "n1" and to_usual.environment["LOCAL_RANK"] == "1"
    to_device = assigned(job.submit(asked(0, "n1", "gpu3")))
    assert job.node_of(to_device.worker) == "n1" and to_device.environment["LOCAL_RANK"] == "3"


@pytest.mark.parametrize(
    "to, device, why",
    [
        ("n7", "", moves.NO_SUCH_NODE(node="n7", known="n0, n1")),
        ("n1", "gpu0", moves.DEVICE_TAKEN(node="n1", device="gpu0", rank=1)),
        ("n1", "GPU-0", moves.DEVICE_TAKEN(node="n1", device="GPU-0", rank=1)),
        ("n1", "MIG-1", moves.NO_SUCH_DEVICE(node="n1", device="MIG-1", known="0000:00:00.0, GPU-0, gpu0")),
    ],
)
def test_or_hears_why_it_cannot_go_there(to: str, device: str, why: str) -> None:
    job = known(JobSpec("job", 2, 1, nodes=2, spares=2))
    assert job.machine.migration_refusal(0, to, device) == why
    assert moves.REFUSED(rank=0, why=why) in reported(job.submit(asked(0, to, device))) and job.machine.state.migration is None


def test_it_goes_to_no_tainted_place_and_to_none_without_a_spare() -> None:
    job = known(JobSpec("job", 2, 1, nodes=2, spares=2))
    job.lose(job.machine.state.nodes["n1"].idle(WorkerState.WARM)[0].name)
    assert job.machine.migration_refusal(0, "n1") == moves.NO_SPARE_THERE(node="n1")
    job.warm()
    assert job.machine.migration_refusal(0, "n1") == ""
    job.submit(seen("gpu0", "n1"))
    assert job.machine.migration_refusal(0, "n1", "gpu0") == moves.NOT_THERE(node="n1", why="gpu0 is tainted")
    job.submit(seen("", "n1"))
    assert job.machine.migration_refusal(0, "n1") == moves.NOT_THERE(node="n1", why="it is hot")


def test_a_drain_is_of_the_node() -> None:
    job = known(JobSpec("job", 2, 1, nodes=2, spares=2))
    job.submit(events.NodeTainted("n0", "a new kernel", *DRAIN, leave=True))
    node = job.machine.state.nodes["n0"]
    assert node.drain is not None and node.device_taints == {}


def test_a_rank_on_its_way_away_is_known_with_its_new_device() -> None:
    job = known(JobSpec("job", 2, 2, spares=1))
    newcomer = moving(job)
    job.verify()
    job.submit(events.UsesDevice(newcomer, "gpu2"))
    job.commit(1)
    assert moves_of(job.submit(seen("gpu1", leave=True))) == [], "no rank is on it any more"


def test_of_several_taints_of_a_device_one_that_asks_to_leave_it_is_enough() -> None:
    job = known(JobSpec("job", 2, 2, spares=1))
    assert moves_of(job.submit(seen("gpu1"))) == []
    assert moves_of(job.submit(seen("gpu1", source="kernel", leave=True))) == [1]


def test_a_rank_can_be_sent_to_the_first_device_of_its_own_node() -> None:
    """Where the rank that was there has gone to another node."""
    job = Job(JobSpec("job", 2, 2, spares=1), spares={0: 1, 1: 1})
    for number in range(2):
        job.submit(events.UsesDevice(f"w{number}", f"gpu{number}"))
    gone = assigned(job.submit(asked(0, "n1")))
    job.submit(events.NewcomerReady(gone.worker, gone.generation))
    job.rest()
    job.verify()
    job.commit(1)
    assert job.machine.state.holder(0).node == "n1"
    assert assigned(job.submit(asked(1, "n0", "gpu0"))).environment["LOCAL_RANK"] == "0"
