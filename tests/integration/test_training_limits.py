"""Jobs that use the documented limits to the full survive a loss like others do."""

from __future__ import annotations

from tests.integration.training import Training, survived, training

__all__ = ["training"]


def test_as_much_rank_local_state_as_may_go_with_a_vote(training: Training) -> None:
    """A copy of 64 MiB, of a rank that is lost in front of a vote, and of the newcomer that has taken it over."""
    reference = training.undisturbed("large.py")
    lost = training.run("large.py", faults="before the vote:2:1,before the vote:3:0", spares=2)
    survived(lost, reference, 2)
