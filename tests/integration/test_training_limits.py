"""Jobs that use the documented limits to the full survive a loss like others do."""

from __future__ import annotations

from tests.integration.training import Training, survived, training

__all__ = ["training"]


def test_as_much_as_may_go_with_a_vote_and_be_heard_in_a_set_up(training: Training) -> None:
    """64 MiB of each: of a rank that is lost in front of a vote, whose set-up has heard it from the other, and then of that other."""
    reference = training.undisturbed("large.py")
    lost = training.run("large.py", faults="before the vote:2:1,before the vote:3:0", spares=2)
    survived(lost, reference, 2)


def test_more_than_may_be_heard_in_a_set_up_is_refused(training: Training) -> None:
    """3 MB that are not registered, where 1 MB is allowed."""
    started = training.begin("misuse.py", "much heard", spares=0, UNDERSTUDY_SETUP_LIMIT=str(1 << 20))
    outcome = started.ends()
    assert outcome.code == 1
    assert "broadcast_ on group '0', gave 3.1 MB (float32 (786432,)) that are not in registered state" in outcome.output
    assert "register the tensor with job.register" in outcome.output
    assert outcome.ask("status")["step"] == 0
