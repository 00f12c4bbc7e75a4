"""Checkpoints that a script writes outside of any transaction: a newcomer writes the last one, and never goes over an earlier one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.integration.processes import wait_until
from tests.integration.training import LONG, Outcome, Training, survived, training, understudy
from tests.message_texts import has

from understudy.messages import newcomers, script

__all__ = ["training"]


@pytest.fixture(scope="module")
def undisturbed() -> Outcome:
    return Training.undisturbed("saving.py")


def _same(one: Path, other: Path) -> bool:
    here, there = torch.load(one), torch.load(other)
    assert here["optimizer"]["param_groups"] == there["optimizer"]["param_groups"]
    pairs = [(here["model"][name], value) for name, value in there["model"].items()]
    for number, moments in there["optimizer"]["state"].items():
        pairs += [(here["optimizer"]["state"][number][name], value) for name, value in moments.items()]
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_the_last_checkpoint_is_written_by_a_newcomer_at_the_end(training: Training, undisturbed: Outcome) -> None:
    """All others have finished, with a schedule that was stepped after every epoch: the newcomer steps it as often."""
    lost = training.run("saving.py", "last only", faults="after an epoch:9:0")
    survived(lost, undisturbed)
    assert _same(lost.folder / "epoch-2.pt", undisturbed.folder / "epoch-2.pt")


LATER = [("by state dicts", "after an epoch:9:0"), ("whole", "after backward:7:0")]


@pytest.mark.parametrize(("how", "fault"), LATER)
def test_checkpoints_of_earlier_epochs_are_not_written_over(training: Training, undisturbed: Outcome, how: str, fault: str) -> None:
    lost = training.run("saving.py", how, faults=fault)
    assert lost.code == 1
    assert has(lost.output, newcomers.SAVES)
    assert has(lost.output, script.USED_BETWEEN)
    assert not (lost.folder / "epoch-2.pt").exists()
    for epoch in range(2):
        path = lost.folder / f"epoch-{epoch}.pt"
        if how == "whole":
            weights = torch.load(path, weights_only=False)["net"].state_dict()
            assert all(torch.equal(weights[name], value) for name, value in torch.load(undisturbed.folder / path.name)["model"].items())
        else:
            assert _same(path, undisturbed.folder / path.name)


def test_a_file_that_is_rewritten_is_not_either(training: Training) -> None:
    lost = training.run("saving.py", "again", faults="after an epoch:9:0")
    assert lost.code == 1
    assert has(lost.output, newcomers.REWRITES) and f"{lost.folder}/newest.txt at " in lost.output
    assert ".write_text at " in lost.output and has(lost.output, script.USED_BETWEEN)
    assert (lost.folder / "newest.txt").read_text() == "epoch-1.pt"


def test_a_planned_migration_is_given_up_there(training: Training) -> None:
    """No rank is lost: the rank stays where it is, and the job goes on as without the request."""
    reference = training.undisturbed("saving.py", "moved", files=("go on",))
    job = training.begin("saving.py", "moved")
    run = str(job.folder / "run")
    wait_until(lambda: all((job.folder / f"waiting on {rank}").exists() for rank in range(2)), "both ranks at step 7", LONG)
    wait_until(lambda: "warm" in understudy("status", "--run-dir", run).stdout, "a warm spare", LONG)
    asked = understudy("migrate", "--rank", "0", "--run-dir", run)
    assert asked.returncode == 0, asked.stderr
    wait_until((job.folder / "newcomer").exists, "the newcomer's set-up", LONG)
    (job.folder / "go on").touch()
    outcome = job.ends()
    assert outcome.code == 0, outcome.output
    assert has(outcome.output, newcomers.SAVES, rank=0)
    assert outcome.record == reference.record
    for epoch in range(3):
        assert _same(outcome.folder / f"epoch-{epoch}.pt", reference.folder / f"epoch-{epoch}.pt")
