"""A rank is killed at every point of a training step, in every way to be parallel: the run is bitwise the undisturbed one.

Several faults share a run, at different steps and ranks; each is a separate incident.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.harness import (
    Fault,
    Job,
    Reference,
    assert_identical,
    assert_incidents,
    assert_survivors_stayed,
    counts,
    either,
    in_evaluation,
    in_step,
    redone,
)
from tests.faults.modes import every_mode
from tests.message_texts import has

from understudy.messages import newcomers

Start = Callable[..., Job]
References = Callable[..., Reference]


@every_mode
def test_up_to_the_vote(mode: str, start: Start, reference: References) -> None:
    """Before it, no rank can have voted in this step, so it is redone; at its start others may still be in the vote of the one before.

    From the start of the vote to its end on this rank, it is a matter of luck whether others have passed it.
    """
    faults = (
        Fault("forward", rank=1, step=1),
        Fault("vote", rank=0, step=3),
        Fault("first collective of backward", rank=2, step=6),
        Fault("vote copies", rank=1, step=9),
        Fault("last collective of backward", rank=3, step=12),
        Fault("vote agreement", rank=2, step=15),
        Fault("between backward and vote", rank=3, step=18),
        Fault("vote passed", rank=0, step=21),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    assert_identical(job, undisturbed, unlogged={(1, "step 10"), (2, "step 16"), (0, "step 22")})
    assert_incidents(
        job,
        redone(1, in_step(1)),
        redone(0, in_step(3)),
        redone(2, in_step(6)),
        either(1, in_step(9)),
        redone(3, in_step(12)),
        either(2, in_step(15)),
        redone(3, in_step(18)),
        counts(0, in_step(21)),
    )
    assert_survivors_stayed(job, {0: 2, 1: 2, 2: 2, 3: 2})


@every_mode
def test_after_the_vote_and_between_steps(mode: str, start: Start, reference: References) -> None:
    """After it the step counts although one rank's part of it was never done: its replica has done the same.

    Then in an evaluation between steps, while a batch is drawn, and where nothing is done at all.
    """
    faults = (
        Fault("apply", rank=3, step=0),
        Fault("collective of the evaluation", rank=0, step=3),
        Fault("evaluation after its collective", rank=2, step=6),
        Fault("apply", rank=1, step=8),  # an evaluation follows in this iteration
        Fault("section vote passed", rank=1, step=12),
        Fault("applied", rank=0, step=15),
        Fault("data loader", rank=3, step=19),
        Fault("between steps", rank=2, step=22),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    unlogged = {(3, "step 1"), (1, "evaluation 12"), (0, "step 16")}
    assert_identical(job, undisturbed, unlogged=unlogged, borrowed={(0, "step 3"), (2, "step 6"), (1, "step 9")})
    incidents = assert_incidents(
        job,
        counts(3, in_step(0)),
        redone(0, in_evaluation(3)),
        redone(2, in_evaluation(6)),
        counts(1, in_step(8)),
        counts(1, in_evaluation(12)),
        counts(0, in_step(15)),
        redone(3, in_step(19)),
        redone(2, in_step(22)),
    )
    assert any(has(note, newcomers.RESULT_OF_ANOTHER) for note in incidents[3]["notes"]), incidents[3]
    assert_survivors_stayed(job, {0: 2, 1: 2, 2: 2, 3: 2})


def test_an_evaluation_that_one_rank_has_not_begun(start: Start, reference: References) -> None:
    """Rank 2 still has the gradients of the step before. The others do the evaluation again with theirs, and the newcomer gets them, or
    the ranks would think differently of what belongs to their state when rank 2 is lost.
    """
    late = Fault("apply", rank=2, step=2, action="gate")
    first = Fault("collective of the evaluation", rank=0, step=3)
    newcomer = Fault("newcomer in its set-up", rank=0, action="gate")
    second = Fault("evaluation after its collective", rank=2, step=6)
    job = start("ddp", late, first, newcomer, second)
    job.wait_for_fault(newcomer)  # rank 2 knows that the generation is over
    job.open_gate(late)
    job.open_gate(newcomer)
    assert_identical(job, reference("ddp"), borrowed={(0, "step 3"), (2, "step 6")})
    assert_incidents(job, redone(0, in_evaluation(3)), redone(2, in_evaluation(6)))
