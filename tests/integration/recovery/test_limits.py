"""Jobs that use the documented limits to the full survive a loss like others do."""

from __future__ import annotations

from tests.integration.training import Training, survived, training
from tests.message_texts import has

from understudy.messages import set_up

__all__ = ["training"]


def test_as_much_as_may_go_with_a_vote_and_be_heard_in_a_set_up(training: Training) -> None:
    """64 MiB of each: of a rank that is lost before a vote, whose set-up has received it from the other, and then of that other."""
    reference = training.undisturbed("large.py")
    lost = training.run("large.py", faults="before the vote:2:1,before the vote:3:0", spares=2)
    survived(lost, reference, 2)


def test_more_than_may_be_heard_in_a_set_up_is_refused(training: Training) -> None:
    """3 MB that are not registered, where 1 MB is allowed."""
    started = training.begin("misuse.py", "much heard", spares=0, UNDERSTUDY_SETUP_LIMIT=str(1 << 20))
    outcome = started.ends()
    assert outcome.code == 1
    size = {"megabytes": 4 * 786432 / 1e6, "shapes": "float32 (786432,)", "limit": (1 << 20) / 1e6}
    assert has(outcome.output, set_up.SET_UP_TOO_LARGE, operator="broadcast_", group="0", **size)
    assert outcome.ask("status")["step"] == 0
