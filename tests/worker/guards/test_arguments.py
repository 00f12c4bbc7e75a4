"""Arguments of a transaction are compared over all of its attempts, and with nothing of an earlier transaction."""

from __future__ import annotations

import pytest
import torch
from tests.message_texts import refused
from tests.worker.steps import step_of

from understudy.messages import script
from understudy.worker.errors import UsageError
from understudy.worker.guards.arguments import ArgumentsGuard
from understudy.worker.participant import Step


@pytest.fixture
def guard() -> ArgumentsGuard:
    return ArgumentsGuard(pytest.fail)


def begun(guard: ArgumentsGuard, batch: torch.Tensor) -> Step:
    step = step_of(arguments=[batch])
    guard.begin(step)
    return step


def test_a_redo_with_the_same_arguments(guard: ArgumentsGuard) -> None:
    step = begun(guard, torch.ones(2))
    guard.attempt(step)
    guard.rollback(step)
    step.attempt = 1
    guard.attempt(step)
    guard.returned(step)


def test_a_redo_with_what_the_first_attempt_has_changed(guard: ArgumentsGuard) -> None:
    batch = torch.ones(2)
    step = begun(guard, batch)
    guard.attempt(step)
    batch.add_(1)
    with refused(UsageError, script.ARGUMENTS_CHANGED_IN_REDO, function="train"):
        guard.rollback(step)


def test_a_redo_with_a_registered_tensor_that_has_been_restored(guard: ArgumentsGuard) -> None:
    queue = torch.ones(2)
    step = begun(guard, queue)
    guard.attempt(step)
    guard.rollback(step)
    queue.copy_(torch.ones(2))
    step.attempt = 1
    guard.attempt(step)
    guard.returned(step)


def test_the_first_attempt_has_failed_before_it_came_here(guard: ArgumentsGuard) -> None:
    batch = torch.ones(2)
    step = begun(guard, batch)
    guard.rollback(step)
    step.attempt = 1
    guard.attempt(step)
    batch.add_(1)
    with refused(UsageError, script.ARGUMENTS_CHANGED, function="train"):
        guard.returned(step)


def test_after_a_transaction_whose_error_the_script_has_caught(guard: ArgumentsGuard) -> None:
    first = torch.ones(2)
    guard.attempt(begun(guard, first))
    first.add_(1)
    step = begun(guard, torch.ones(2))
    guard.attempt(step)
    guard.returned(step)
