"""When a taint is over, whose decision counts, and when a move is tried again."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, of

from understudy.core import commands, events, taints
from understudy.core.model import JobSpec


def says(source: str, *, leave: bool = True, reason: str = "loud", until: float = 0.0) -> events.NodeTainted:
    return events.NodeTainted("n0", reason, source, until=until, leave=leave)


def test_a_taint_is_over_at_the_moment_that_it_names() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0))
    job.submit(says("nvml", until=100.0))
    job.machine.handle(events.Expired(taints.TIMER), 100.0)
    assert job.machine.state.nodes["n0"].taint == ""


@pytest.mark.parametrize(("source", "person"), [("nvml", False), ("operator", True)])
def test_only_a_person_makes_what_was_seen_before_count_no_more(source: str, person: bool) -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0))
    job.submit(says("nvml"))
    job.submit(says(source, reason=""))
    node = job.machine.state.nodes["n0"]
    assert node.taint == "" and node.trusted_at == (job.now if person else 0.0)


def test_a_move_that_has_failed_twice_is_tried_again_if_another_source_asks_for_it_and_not_if_it_only_warns() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    said = job.submit(says("nvml"))
    for _ in range(2):
        said = [*job.lose(assigned(said).worker), *job.warm()]
    assert not of(commands.Assign, said)
    assert not of(commands.Assign, job.submit(says("fabric", leave=False)))
    assert not of(commands.Assign, job.submit(says("nvml", reason="louder")))
    assert assigned(job.submit(says("fabric"))).rank == 0
