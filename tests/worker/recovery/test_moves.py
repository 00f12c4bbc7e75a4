"""Ranks move to spares while their workers are alive, and the job reaches the same bits: whole jobs in one process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.message_texts import has
from tests.worker.job_in_one_process import Ask, Job, Loss
from tests.worker.scripts_in_one_process import ITERATIONS, SCRIPTS, undisturbed
from tests.worker.worker_in_one_process import Rank, replace_what_needs_processes, until

from understudy.core import events
from understudy.core.state import Stage
from understudy.messages import recoveries
from understudy.worker.recovery import newcomer

RANKS = 3
ASKED_IN = 2  # iteration
IN_STEPS = ("begin", "vote", "vote agreement", "vote passed", "committed")
OF_DONORS = ("quiesce", "donate")  # of the leaver, too
OF_NEWCOMERS = ("taken", "prove", "verified", "attached")


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_what_needs_processes(monkeypatch)
    monkeypatch.setattr(newcomer, "WORTH", timedelta(milliseconds=1))  # training waits for newcomers, so they must not wait for training


def moving(folder: Path, name: str, rank: int, *losses: Loss) -> Job:
    """A job whose `rank` moves."""
    return disturbed(folder, name, RANKS, events.MigrationAsked(rank, "drained"), *losses)


def disturbed(
    folder: Path, name: str, size: int, event: events.Event, *losses: Loss, spares: int = 1, devices: Mapping[int, str] | None = None
) -> Job:
    """Training waits, in the middle, until newcomers are ready and the pause is announced."""
    script, each = SCRIPTS[name]
    asked = Ask(0, "begin", event, ASKED_IN * each + 1)

    def with_a_wait(at: Rank, iteration: int) -> None:
        if iteration == ASKED_IN + 1:
            until(lambda: job.over.is_set() or is_announced(job))
        script(at, iteration)

    job = Job(folder, size, with_a_wait, ITERATIONS, each, (asked, *losses), spares=spares + len(losses))
    job.devices.update(devices or {})
    return job.run()


def is_announced(job: Job) -> bool:
    state = job.machine.state
    if job.machine.incidents():
        return True
    return state.migration is not None and state.migration.stage is not Stage.PREPARING


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_rank_moves(name: str, rank: int, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, name, RANKS).states
    job = moving(tmp_path, name, rank)
    assert job.ended is not None and job.ended[0] == 0, job.reported
    (incident,) = job.machine.incidents()
    assert (incident.planned, [one.rank for one in incident.ranks], incident.steps_lost) == (True, [rank], 0)
    assert incident.ranks[0].old_worker != incident.ranks[0].new_worker
    assert job.states == expected


@pytest.mark.parametrize(
    "loss",
    [
        *(Loss(rank, point, 4) for point in IN_STEPS for rank in (0, 1)),
        *(Loss(rank, point) for point in OF_DONORS for rank in (0, 1)),
        *(Loss(0, "attach"), Loss(1, "attach", 1), Loss(1, "attach", 2)),  # of the donor, the leaver, the newcomer
        *(Loss(1, point) for point in OF_NEWCOMERS),
    ],
    ids=lambda loss: f"{loss.point}-{loss.rank}-{loss.time}",
)
def test_a_loss_at_each_point_of_a_move(loss: Loss, tmp_path: Path) -> None:
    """Of rank 0, which stays, and of rank 1, which moves: of the worker that has it then."""
    expected = undisturbed(tmp_path, "optimizer", RANKS).states
    job = moving(tmp_path, "optimizer", 1, loss)
    assert loss in job.struck, job.struck
    assert job.ended is not None and job.ended[0] == 0, job.reported
    assert job.states == expected


FOUR = (1, 2, 3, 4)
LEFT = events.NodeTainted("n0", "it is about to fail", "detector", "gpu0", leave=True)


def test_four_ranks_leave_a_device_at_one_boundary(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, "optimizer", 5).states
    job = disturbed(tmp_path, "optimizer", 5, LEFT, spares=4, devices=dict.fromkeys(FOUR, "gpu0"))
    assert job.ended is not None and job.ended[0] == 0, job.reported
    (incident,) = job.machine.incidents()
    assert (incident.planned, [one.rank for one in incident.ranks]) == (True, list(FOUR))
    assert job.states == expected


@pytest.mark.parametrize(
    "loss",
    [Loss(2, "donate"), Loss(3, "quiesce"), Loss(4, "taken"), Loss(1, "verified")],
    ids=lambda loss: f"{loss.point}-{loss.rank}",
)
def test_a_loss_while_four_ranks_leave(loss: Loss, tmp_path: Path) -> None:
    """Of a leaver or of a newcomer. The loss of the only rank that stays ends the job (`core/migration.py`, known limit). So may that of a
    verified newcomer: its leaver is released, and the ranks that kept its copies have left as well."""
    expected = undisturbed(tmp_path, "optimizer", 5).states
    job = disturbed(tmp_path, "optimizer", 5, LEFT, loss, spares=4, devices=dict.fromkeys(FOUR, "gpu0"))
    assert loss in job.struck and job.ended is not None, job.reported
    if job.ended[0] == 0:
        assert job.states == expected
    else:
        assert loss.point == "verified" and has(job.ended[1], recoveries.LOST_TOGETHER), job.ended


LOSSES = some.one_of(
    some.builds(Loss, some.integers(0, 2), some.sampled_from(IN_STEPS), some.integers(3, 8)),
    some.builds(Loss, some.integers(0, 2), some.sampled_from((*OF_DONORS, "attach", *OF_NEWCOMERS)), some.integers(1, 2)),
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.sampled_from(sorted(SCRIPTS)), some.integers(0, 2), some.lists(LOSSES, max_size=2, unique=True))
def test_a_move_and_losses_anywhere(tmp_path: Path, name: str, moved: int, losses: list[Loss]) -> None:
    """The same bits; or, if several were lost so soon after each other that state is nowhere, the job reports it and ends."""
    expected = undisturbed(tmp_path, name, RANKS).states
    job = moving(tmp_path, name, moved, *losses)
    assert job.ended is not None
    if job.ended[0] == 0:
        assert job.states == expected
    else:
        assert len([one for one in job.struck if isinstance(one, Loss)]) > 1, job.ended
