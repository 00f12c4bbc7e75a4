"""A newcomer's set-up runs long after the job began: files that the job has written meanwhile, and that it reads, are named."""

from __future__ import annotations

import pytest
from tests.integration.training import Training, survived, training
from tests.message_texts import codes, has

from understudy.messages import losses, set_up

__all__ = ["training"]


@pytest.mark.parametrize("fault", ["after backward:4:1", "after backward:7:0"])
def test_a_snapshot_that_the_job_writes_is_named(training: Training, fault: str) -> None:
    """In the middle of the second epoch, and of the third."""
    lost = training.run("resuming.py", faults=fault, spares=2)
    rank = fault[-1]
    assert lost.code == 1
    last = [line for line in lost.output.splitlines() if has(line, losses.SCRIPT_FAILED, rank=rank)]
    assert len(last) == 1 and has(last[0], set_up.FILES_WRITTEN_SINCE, files=f"{lost.folder}/snapshot.pt")
    assert "DataLoader" not in lost.output and "the network" not in lost.output  # and the other spare is not used up for it


def test_a_snapshot_that_is_not_read_again_is_not(training: Training) -> None:
    lost = training.run("resuming.py", "given", faults="after backward:4:1")
    survived(lost, training.undisturbed("resuming.py", "given"))
    notes = [note for one in lost.incidents for note in one["notes"]]
    assert set_up.FILES_WRITTEN_SINCE.code not in codes([lost.output, *notes])
