"""Silent faults: what no checksum of a message sees is found out before anything resumes on it, or within the steps between two
comparisons.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

from tests.faults.harness import LIMIT, RANKS, Fault, Job, Outcome, Reference, assert_identical, assert_incidents, in_step
from tests.integration.processes import send, wait_until
from tests.message_texts import has

from understudy.messages import coverage, disputes
from understudy.worker.fault_injection.silent import ON_ALL, ON_NEWCOMERS

Start = Callable[..., Job]
References = Callable[..., Reference]

KINDS = {  # on newcomers, or of a donor; and a word by which the report names the difference
    "parameter_not_loaded": "first.weight",
    "values_permuted": "weight",
    "parameter_in_another": "norm.weight",
    "stale_moment": "exp_avg",
    "step_counter_reset": "/step",
    "job_counter_reset": "steps",
    "cast_in_between": "exp_avg_sq",
    "buffer_dropped": "/buffer/",
    "random_stream_not_restored": "'torch'",
    "data_position_not_restored": "batch",
    "reduction_order": "a different order",
}


def plan(*faults: tuple[str, int, int]) -> dict[str, str]:
    return {"UNDERSTUDY_SILENT_FAULTS": ";".join(f"{kind}:{rank}:{when}" for kind, rank, when in faults)}


def happened(job: Job, kind: str, rank: int) -> bool:
    return f"silent fault {kind} on rank {rank}" in job.output


def test_each_on_a_newcomer_is_found_out_and_another_spare_takes_over(start: Start, reference: References) -> None:
    """In each incident two newcomers get a state that is wrong, each in another way; the next one gets the right one."""
    undisturbed = reference("ddp")
    assert KINDS.keys() == ON_NEWCOMERS.keys() | ON_ALL.keys() | {"stale_moment"}
    losses = [Fault("last collective of backward", rank=1, step=step) for step in (4, 7, 10, 14, 17, 20)]
    kinds = list(KINDS)
    when = {kind: 3 * (number // 2) + number % 2 + 1 for number, kind in enumerate(kinds)}  # generations 1, 2, not 3; 4, 5, not 6; ...
    # A message about a moment comes from whichever donor the plan has for it: each of them would send the stale one.
    faults = [(kind, rank, when[kind]) for kind in kinds for rank in ((0, 2, 3) if kind == "stale_moment" else (1,))]
    job = start("ddp", *losses, spares=len(losses) + len(kinds), flags=("--no-replenish",), variables=plan(*faults))
    assert_identical(job, undisturbed)
    rejected = [2] * (len(losses) - 1) + [1]
    outcomes = [Outcome([1] * (1 + count), {in_step(fault.step or 0)}) for fault, count in zip(losses, rejected, strict=True)]
    incidents = assert_incidents(job, *outcomes, causes={"killed", "digest"})
    parts = [part for incident in incidents for part in incident["ranks"] if part["cause"] == "digest"]
    assert len(parts) == len(kinds)
    for kind, part in zip(kinds, parts, strict=True):
        assert KINDS[kind] in part["detail"] and "rank 1" in part["detail"], (kind, part)
        assert any(happened(job, kind, rank) for rank in RANKS), kind


def test_the_odd_one_of_three_donors_is_named_and_replaced(start: Start, reference: References) -> None:
    undisturbed = reference("ddp")
    fault = Fault("last collective of backward", rank=1, step=6)
    job = start("ddp", fault, spares=2, flags=("--no-replenish",), variables=plan(("flipped_bit_in_donor", 2, 1)))
    assert_identical(job, undisturbed)
    (incident,) = assert_incidents(job, Outcome([1, 2], {in_step(6)}), causes={"killed", "corrupt"})
    assert happened(job, "flipped_bit_in_donor", 2)
    odd = incident["ranks"][1]
    assert (odd["rank"], odd["cause"]) == (2, "corrupt") and odd["new_worker"], odd
    assert "norm.weight" in odd["detail"] and has(odd["detail"], coverage.ODD, rank=2, others="ranks 0, 3"), odd
    assert any(has(note, disputes.NO_REPLICA, rank=2) for note in incident["notes"]), incident["notes"]
    assert "rank 2" in job.ask("status")["taints"]["node0"]


def test_two_that_differ_pause_the_job_until_an_operator_chooses(start: Start, reference: References) -> None:
    """A shard has two replicas, and they differ: the job pauses, whatever happens to its orchestrator, and goes on with the one that
    is named.
    """
    undisturbed = reference("hsdp")
    fault = Fault("last collective of backward", rank=1, step=6)
    job = start("hsdp", fault, spares=2, flags=("--no-replenish",), variables=plan(("flipped_bit_in_donor", 0, 1)))
    wait_until(lambda: disputes.HELD.code in job.output or job.process.poll() is not None, "the job is held", LIMIT)
    status = job.ask("status")
    assert status["state"] == "held", status
    assert has(status["message"], coverage.DISPUTED, ranks="ranks 0, 2") and disputes.HELD.code in status["message"], status["message"]
    assert status["step"] == 6
    where = job.run_dir / "orchestrator.json"
    orchestrator = json.loads(where.read_text())["pid"]
    send(orchestrator, signal.SIGKILL)
    wait_until(lambda: json.loads(where.read_text())["pid"] != orchestrator, "the orchestrator is started again", LIMIT)
    assert job.ask("status")["state"] == "held"
    assert all(max(line.get("step", 0) for line in job.lines(rank)) == 6 for rank in RANKS), "no rank has gone on"
    job.command("resolve", "--keep-rank", "2", "--reason", "its digest is that of the checkpoint")
    assert_identical(job, undisturbed)
    assert happened(job, "flipped_bit_in_donor", 0)
    (incident,) = assert_incidents(job, Outcome([0, 1], {in_step(6)}), causes={"killed", "corrupt"})
    assert any(has(note, disputes.BELIEVED_FOR, rank=2) for note in incident["notes"]), incident["notes"]


def test_a_comparison_on_the_side_finds_a_moment_that_has_changed(start: Start, reference: References) -> None:
    """Nothing is lost, and nothing of it reaches another rank: the run is the undisturbed one, bit for bit."""
    undisturbed = reference("ddp")
    flags = ("--no-replenish", "--compare-every", "5")
    job = start("ddp", spares=1, flags=flags, variables=plan(("flipped_bit_in_moment", 3, 10)))
    assert_identical(job, undisturbed)
    (incident,) = job.incidents()
    assert [(part["rank"], part["cause"]) for part in incident["ranks"]] == [(3, "corrupt")]
    assert incident["transaction"] == in_step(11), "the vote of the 11th step has reported it"
    assert "exp_avg" in incident["ranks"][0]["detail"] and incident["digests_verified"] > 0, incident
    assert "rank 3" in job.ask("status")["taints"]["node0"]


def test_the_result_of_the_last_vote_is_examined_before_the_end(start: Start) -> None:
    """The script has ended on every rank then, and each of them, the odd one too, has written its state."""
    flags = ("--no-replenish", "--compare-every", "4")
    job = start("ddp", spares=1, flags=flags, arguments=("--steps", "5"), variables=plan(("flipped_bit_in_moment", 2, 4)))
    assert job.wait() == 0, job.output[-6000:]
    (incident,) = job.incidents()
    assert [(part["rank"], part["cause"]) for part in incident["ranks"]] == [(2, "corrupt")]
    assert incident["digests_verified"] > 0 and job.ask("status")["state"] == "finished"


def test_a_comparison_on_the_side_finds_a_parameter_that_has_changed(start: Start) -> None:
    """Its gradients were added to all others' meanwhile, so the run is another one from there on; but the same on all ranks."""
    flags = ("--no-replenish", "--compare-every", "5")
    job = start("ddp", spares=1, flags=flags, variables=plan(("flipped_bit_in_parameter", 0, 12)))
    assert job.wait() == 0, job.output[-6000:]
    (incident,) = job.incidents()
    assert [(part["rank"], part["cause"]) for part in incident["ranks"]] == [(0, "corrupt")]
    assert "norm.weight" in incident["ranks"][0]["detail"], incident
    states = [{name: value for name, value in job.state(rank).items() if name.startswith(("parameter", "optimizer"))} for rank in RANKS]
    assert states[0] and all(state == states[0] for state in states)
