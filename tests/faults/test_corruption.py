"""State that arrives wrong is found out before anything resumes on it, whatever is wrong with it and wherever it happened."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.harness import RANKS, Fault, Job, Outcome, Reference, assert_identical, assert_incidents, in_step
from tests.message_texts import has

from understudy.messages import losses, recoveries

Start = Callable[..., Job]
References = Callable[..., Reference]

LOST_AT = 4  # committed steps


KINDS = {  # and a word by which the report names the difference
    "flipped_bit_on_donors": "first.weight",
    "swapped_values_on_newcomer": "first.weight",
    "stale_moment_on_donors": "exp_avg",
    "random_state_on_newcomer": "random",
    "data_position_on_newcomer": "batch",
    "data_position_in_copy_on_donors": "batch",
    "flipped_bit_in_copy_on_donors": "copy",
    "copy_of_the_step_before_on_donors": "copy",
}


def test_each_is_found_out_and_a_spare_with_the_right_state_goes_on(start: Start, reference: References) -> None:
    """In each of four incidents two newcomers get a state that is wrong, each in another way; the third one gets the right one."""
    undisturbed = reference("ddp")
    losses = [Fault("last collective of backward", rank=1, step=step) for step in (LOST_AT, 8, 15, 20)]
    kinds = list(KINDS)
    plan = ";".join(f"{kinds[2 * i]};{kinds[2 * i + 1]};" for i in range(4))  # generations 1, 2, not 3; 4, 5, not 6; ...
    spares = len(losses) + len(kinds)
    job = start("ddp", *losses, spares=spares, flags=("--no-replenish",), arguments=("--corruption", plan))
    assert_identical(job, undisturbed)
    outcomes = [Outcome([1, 1, 1], {in_step(fault.step or 0)}) for fault in losses]
    incidents = assert_incidents(job, *outcomes, causes={"killed", "digest"})
    parts = [part for incident in incidents for part in incident["ranks"]]
    assert [part["cause"] for part in parts] == ["killed", "digest", "digest"] * len(losses)
    rejected = [part for part in parts if part["cause"] == "digest"]
    for kind, part in zip(kinds, rejected, strict=True):
        assert KINDS[kind] in part["detail"], (kind, part)
        assert list(job.folder.glob(f"corrupted-{kind}-*")), f"{kind} took place"


def test_no_rank_resumes_on_it(start: Start, reference: References) -> None:
    """With no other spare the job ends, gives the reason, and commits nothing more."""
    undisturbed = reference("ddp")
    kind = "flipped_bit_on_donors"
    fault = Fault("last collective of backward", rank=1, step=LOST_AT)
    job = start("ddp", fault, arguments=("--corruption", kind))
    assert job.wait() != 0
    assert list(job.folder.glob(f"corrupted-{kind}-*")), "the corruption took place"
    for rank in RANKS:
        lines = job.lines(rank)
        assert lines == undisturbed.lines[rank][: len(lines)]
        assert max(line.get("step", 0) for line in lines) == LOST_AT
    status = job.ask("status")
    assert status["state"] == "failed" and status["step"] == LOST_AT
    message = status["message"]
    assert has(message, losses.NOT_VERIFIED, rank=1) and KINDS[kind] in message, message
    assert has(message, recoveries.NO_SPARE_LEFT), message
    incident = job.incidents()[-1]
    assert [part["cause"] for part in incident["ranks"]] == ["killed", "digest"]
    assert incident["digests_verified"] == 0
