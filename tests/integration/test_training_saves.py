"""Checkpoints that a script writes outside of any transaction: what a newcomer finds there is right, and never written over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.integration.processes import marked
from tests.integration.training import Outcome, Training, survived, training

__all__ = ["training"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    with marked() as mark:
        return Training(tmp_path_factory.mktemp("undisturbed"), mark).torchrun("saving.py")


def _same(one: Path, other: Path) -> bool:
    here, there = torch.load(one), torch.load(other)
    assert here["optimizer"]["param_groups"] == there["optimizer"]["param_groups"]
    pairs = [(here["model"][name], value) for name, value in there["model"].items()]
    for number, moments in there["optimizer"]["state"].items():
        pairs += [(here["optimizer"]["state"][number][name], value) for name, value in moments.items()]
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("fault", ["behind an epoch:3:0", "after backward:3:0"])
def test_the_state_arrives_where_it_is_saved(training: Training, undisturbed: Outcome, fault: str) -> None:
    """Rank 0 is lost before it saves the first epoch, or right behind that: its newcomer writes it (again), as it was."""
    lost = training.run("saving.py", faults=fault)
    survived(lost, undisturbed)
    for epoch in range(3):
        assert _same(lost.folder / f"epoch-{epoch}.pt", undisturbed.folder / f"epoch-{epoch}.pt")


def test_the_last_checkpoint_is_written_by_a_newcomer_at_the_end(training: Training) -> None:
    """All others have finished, with the schedule stepped behind the last epoch: the newcomer steps its own, and then the state arrives."""
    reference = training.torchrun("saving.py", "one epoch")
    lost = training.run("saving.py", "one epoch", faults="behind an epoch:3:0")
    survived(lost, reference)
    assert _same(lost.folder / "epoch-0.pt", reference.folder / "epoch-0.pt")


LATER = [("by state dicts", "after backward:7:0"), ("whole", "after backward:7:0"), ("by state dicts", "behind an epoch:9:0")]


@pytest.mark.parametrize(("how", "fault"), LATER)
def test_checkpoints_of_earlier_epochs_are_not_written_over(training: Training, undisturbed: Outcome, how: str, fault: str) -> None:
    lost = training.run("saving.py", how, faults=fault)
    assert lost.code == 1
    assert "this newcomer comes by code that saves or copies" in lost.output
    assert "is used between transactions, where a newcomer comes by before its state has arrived" in lost.output
    assert not (lost.folder / "epoch-2.pt").exists()
    for epoch in range(2) if how != "whole" else ():
        assert _same(lost.folder / f"epoch-{epoch}.pt", undisturbed.folder / f"epoch-{epoch}.pt")
