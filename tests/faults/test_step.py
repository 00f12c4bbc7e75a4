"""A rank is killed at every point of a training step, in every way to be parallel: the run is bitwise the undisturbed one.

Several faults share a run, at different steps and ranks; each is an incident of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
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

Start = Callable[..., Job]
References = Callable[..., Reference]

MODES = pytest.mark.parametrize("mode", ["ddp", "hsdp", "tp"])


@MODES
def test_forward_and_backward(mode: str, start: Start, reference: References) -> None:
    """Nobody can have voted in this step, so it is redone; at its start others may still be in the vote of the step before."""
    faults = (
        Fault("forward", rank=1, step=1),
        Fault("first collective of backward", rank=0, step=4),
        Fault("last collective of backward", rank=2, step=8),
        Fault("between backward and vote", rank=3, step=13),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    assert_identical(job, undisturbed)
    assert_incidents(job, redone(1, in_step(1)), redone(0, in_step(4)), redone(2, in_step(8)), redone(3, in_step(13)))
    assert_survivors_stayed(job, {0: 1, 1: 1, 2: 1, 3: 1})


@MODES
def test_vote(mode: str, start: Start, reference: References) -> None:
    """From the start of the vote to its end on this rank. Whether others have passed it is a matter of luck."""
    faults = (
        Fault("vote of a step: at its start", rank=0, step=1),
        Fault("vote of a step: copies handed over", rank=1, step=4),
        Fault("vote of a step: agreement issued", rank=2, step=7),
        Fault("vote of a step: passed here", rank=3, step=12),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    assert_identical(job, undisturbed, unlogged={(1, "step 5"), (2, "step 8"), (3, "step 13")})
    assert_incidents(job, redone(0, in_step(1)), either(1, in_step(4)), either(2, in_step(7)), counts(3, in_step(12)))
    assert_survivors_stayed(job, {0: 1, 1: 1, 2: 1, 3: 1})


@MODES
def test_behind_the_vote(mode: str, start: Start, reference: References) -> None:
    """The step counts although one rank's part of it was never done: its replica has done the same."""
    faults = (
        Fault("after the vote, before optimizer.step", rank=3, step=0),
        Fault("after the vote, before optimizer.step", rank=1, step=5),  # an evaluation follows in this iteration
        Fault("after optimizer.step", rank=0, step=9),
        Fault("between steps", rank=2, step=13),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    assert_identical(job, undisturbed, unlogged={(3, "step 1"), (0, "step 10")}, borrowed={(1, "step 6")})
    incidents = assert_incidents(job, counts(3, in_step(0)), counts(1, in_step(5)), counts(0, in_step(9)), redone(2, in_step(13)))
    assert any("result of the transaction" in note for note in incidents[1]["notes"]), incidents[1]
    assert_survivors_stayed(job, {0: 1, 1: 1, 2: 1, 3: 1})


@MODES
def test_evaluation_and_data(mode: str, start: Start, reference: References) -> None:
    """In a section between steps, and while a batch is drawn."""
    faults = (
        Fault("collective of the evaluation", rank=0, step=3),
        Fault("evaluation after its collective", rank=2, step=6),
        Fault("vote of a section: passed here", rank=1, step=9),
        Fault("data loader", rank=3, step=13),
    )
    undisturbed = reference(mode)
    job = start(mode, *faults)
    assert_identical(job, undisturbed, unlogged={(1, "evaluation 9")}, borrowed={(0, "step 3"), (2, "step 6")})
    assert_incidents(job, redone(0, in_evaluation(3)), redone(2, in_evaluation(6)), counts(1, in_evaluation(9)), redone(3, in_step(13)))
    assert_survivors_stayed(job, {0: 1, 1: 1, 2: 1, 3: 1})
