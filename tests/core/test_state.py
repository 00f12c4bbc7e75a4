"""What is asked of the state before there is much of it, and which limits of time are accepted."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job

from understudy.core.model import JobSpec, Timeouts


def test_a_job_whose_ranks_are_not_given_out_is_at_step_zero_and_has_not_finished() -> None:
    state = Job(JobSpec("job", 2, 2), forming=True).machine.state
    assert state.step() == 0 and not state.all_finished()


def test_a_node_may_be_lost_after_two_heartbeats_and_no_earlier() -> None:
    assert Timeouts(heartbeat=1.0, node_lost=2.0).node_lost == 2.0
    with pytest.raises(ValueError):
        Timeouts(heartbeat=1.0, node_lost=1.9)
