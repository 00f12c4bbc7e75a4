"""State that arrives wrong is found out before anything resumes on it, whatever is wrong with it and wherever it happened."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.faults.harness import RANKS, Fault, Job, Outcome, Reference, assert_identical, assert_incidents, in_step

Start = Callable[..., Job]
References = Callable[..., Reference]

LOST_AT = 4  # committed steps


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("flipped_bit_on_donors", "first.weight"),
        ("swapped_values_on_newcomer", "first.weight"),
        ("stale_moment_on_donors", "exp_avg"),
        ("random_state_on_newcomer", "random"),
        ("data_position_on_newcomer", "batch"),
        ("data_position_in_copy_on_donors", "batch"),
        ("flipped_bit_in_copy_on_donors", "copy"),
        ("copy_of_the_step_before_on_donors", "copy"),
    ],
)
def test_never_resumes_on_it(kind: str, word: str, start: Start, reference: References) -> None:
    """With no other spare the job ends, says why, and commits nothing more."""
    undisturbed = reference("ddp")
    fault = Fault("last collective of backward", rank=1, step=LOST_AT)
    job = start("ddp", fault, arguments=("--corruption", kind))
    assert job.wait() != 0
    assert list(job.folder.glob("corrupted*")), "the corruption took place"
    for rank in RANKS:
        lines = job.lines(rank)
        assert lines == undisturbed.lines[rank][: len(lines)]
        assert max(line.get("step", 0) for line in lines) == LOST_AT
    status = job.ask("status")
    assert status["state"] == "failed" and status["step"] == LOST_AT
    message = status["message"]
    assert "did not verify" in message and "rank 1" in message and word in message, message
    assert "--spares" in message, message
    incident = job.incidents()[-1]
    assert [part["cause"] for part in incident["ranks"]] == ["killed", "digest"]
    assert incident["digests_verified"] == 0


def test_next_spare_gets_the_right_state(start: Start, reference: References) -> None:
    undisturbed = reference("ddp")
    fault = Fault("last collective of backward", rank=1, step=LOST_AT)
    job = start("ddp", fault, spares=2, arguments=("--corruption", "flipped_bit_on_donors@once"))
    assert_identical(job, undisturbed)
    assert (job.folder / "corrupted").exists()
    assert_incidents(job, Outcome([1, 1], {in_step(LOST_AT)}), causes={"killed", "digest"})
