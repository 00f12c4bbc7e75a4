"""Jobs of many kinds lose a rank and compute the same as without the loss, bit by bit.

Every reference is run under torchrun, without Understudy's processes: the same script, the same result.
"""

from __future__ import annotations

import pytest
import torch
from tests.integration.training import Outcome, Training, survived, training
from tests.message_texts import has

from understudy.messages import newcomers, transactions
from understudy.worker.transport.backends import rejoining

__all__ = ["training"]


def test_two_models_two_optimizers_two_transactions_per_iteration(training: Training) -> None:
    reference = training.undisturbed("gan.py")
    lost = training.run("gan.py", faults="maker forward:9:1,critic forward:16:0", spares=2)
    first, second = survived(lost, reference, losses=2)
    assert (first["cause"], first["rank"], first["transaction"]) == ("killed", 1, 9)
    assert first["decision"] in ("redo", "roll forward")  # of the transaction before, if the other rank had not read all of its vote
    assert f"rank 1: {newcomers.RESULT_OF_ANOTHER(place='0.4.0')}" in first["notes"]
    assert (second["rank"], second["transaction"]) == (0, 16)


def test_sub_groups_meshes_functional_collectives_and_sections(training: Training) -> None:
    """Lost before the loop, in a step, and in evaluations within the loop and after it."""
    reference = training.undisturbed("groups.py", ranks=4)
    faults = "first evaluation:0:1,before the vote:5:2,evaluation:8:0,last evaluation:12:3"
    survived(training.run("groups.py", ranks=4, faults=faults, spares=4), reference, 4)


def test_mixed_precision_static_graph_checkpointing_and_unused_parameters(training: Training) -> None:
    """Lost in the very first step, after unscaling, in the step that overflows, and after the vote, which is rolled forward."""
    reference = training.undisturbed("mixed.py")
    faults = "before the vote:0:0,unscaled:3:1,unscaled:5:0,between two optimizers:8:1"
    lost = training.run("mixed.py", faults=faults, spares=4)
    incidents = survived(lost, reference, 4, unseen={"log-1": 2})
    # The first two come so soon after each other that they may be in one incident.
    assert [incident["transaction"] for incident in incidents] in ([0, 3, 5, 9], [3, 5, 9])


def test_accumulation_over_transactions_epochs_and_own_objects(training: Training) -> None:
    """With no_sync the gradients between two transactions differ from rank to rank; a worker process draws random numbers."""
    reference = training.undisturbed("accumulation.py", "no_sync")
    faults = "forward:10:1,before the vote:12:0,measuring epoch 1:16:0,before the vote:20:1"
    survived(training.run("accumulation.py", "no_sync", faults=faults, spares=4), reference, 4)


def test_accumulation_of_reduced_gradients(training: Training) -> None:
    reference = training.undisturbed("accumulation.py", "synchronized")
    faults = "before the vote:1:0,forward:17:1"
    survived(training.run("accumulation.py", "synchronized", faults=faults, spares=2), reference, 2)


def test_rank_local_state_that_changes_outside_transactions(training: Training) -> None:
    """In the loop's body before and after a step, and random numbers drawn between the end of the loop and a section."""
    reference = training.undisturbed("late.py")
    lost = training.run("late.py", faults="before the vote:4:1,after the vote:6:0,in the evaluation:9:0", spares=3)
    survived(lost, reference, 3)
    status = lost.ask("status")
    assert status["torch"] == {str(torch.__version__): ["gloo"] if rejoining.available() else []}
    notices, changes = status["notices"], transactions.CHANGES_AFTER_VOTE
    assert any(has(notice, changes, point="between the last transaction and train") and "seen/value" in notice for notice in notices), (
        notices
    )


def test_random_numbers_that_are_rarely_drawn_after_the_vote(training: Training) -> None:
    """None of this was seen while ranks compared everything; each loss is in the transaction that follows a draw, a step or a section."""
    lost = training.run("rare.py", faults="forward:30:1,in the evaluation:40:0,forward:50:1", spares=3)
    survived(lost, training.undisturbed("rare.py"), 3)
    notices = lost.ask("status")["notices"]
    assert any(has(notice, transactions.CHANGES_AFTER_VOTE, point="after train") and "'torch'" in notice for notice in notices), notices


def test_a_random_number_that_was_lost_with_its_rank_is_reported(training: Training) -> None:
    lost = training.run("rare.py", faults="drawn:29:1")
    assert lost.code == 0, lost.output
    assert f"understudy: rank 1 on w2: {newcomers.CHANGE_LOST(point='after train', transaction=30)}" in lost.output, lost.output


def test_state_that_a_loss_kept_from_being_handed_over_is_handed_over_after_its_recovery(training: Training) -> None:
    """Rank 1 is lost before it hands over, so that rank 0 cannot either; and rank 0 in the step that follows the recovery, when only
    the newcomer is left.
    """
    lost = training.run("between.py", faults="between:10:1,forward:10:0", spares=2)
    survived(lost, training.undisturbed("between.py"), 2)


def _model(outcome: Outcome) -> dict[str, torch.Tensor]:
    saved: dict[str, torch.Tensor] = torch.load(outcome.folder / "model.pt", weights_only=True)["model"]
    return saved


@pytest.fixture(scope="module")
def undisturbed() -> Outcome:
    return Training.undisturbed("ends.py")


@pytest.mark.parametrize("fault", ["after the evaluation:6:0", "in the last evaluation:6:1", "after the evaluation:6:1"])
def test_a_loss_at_the_end(training: Training, undisturbed: Outcome, fault: str) -> None:
    """Others have left the loop, or the whole script; rank 0 is lost before it saves the model."""
    lost = training.run("ends.py", faults=fault)
    survived(lost, undisturbed)
    expected = _model(undisturbed)
    assert all(torch.equal(value, expected[name]) for name, value in _model(lost).items())
