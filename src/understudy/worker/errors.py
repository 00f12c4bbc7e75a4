"""The exceptions of the training process."""

from __future__ import annotations

import errno
import os
import sys


class UnderstudyError(RuntimeError):
    """The job cannot continue with the script as it is. The text describes what happened and what to change."""


class UsageError(UnderstudyError):
    """Raised when the script breaks a rule of the training API."""


class BadMessage(UnderstudyError):
    """Raised when a message of another worker is invalid: the text names the mistake."""


class GenerationAborted(RuntimeError):
    """Raised when the generation is over: unwinds user code up to the transaction, which then recovers.

    It is not a verdict by itself. A framework that swallows it gains nothing: until the worker has joined the next generation, its
    groups and its vote refuse everything.
    """


class PeerLost(RuntimeError):
    """Raised when a connection of the runtime's own with another rank broke, so that rank may be lost."""


class DonorMismatch(UnderstudyError):
    """Raised when members that should have the same by all that is known differ. `sides`: the members, grouped by their content."""

    def __init__(self, text: str, sides: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(text)
        self.sides = sides


class StateMismatch(UnderstudyError):
    """Raised when a newcomer's state is not what its lost rank had. The job does not resume on it; another spare may try."""


class BatchMismatch(StateMismatch):
    """Raised when a newcomer draws another batch than its lost rank had. `found`: the same without advice."""

    def __init__(self, text: str, found: str) -> None:
        super().__init__(text)
        self.found = found


def is_port_taken(error: BaseException) -> bool:
    """Return whether `error`, or its cause, reports that another process has this address."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if (isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE) or os.strerror(errno.EADDRINUSE).lower() in str(cause).lower():
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def errors_of_functions() -> tuple[type[BaseException], ...]:
    """Return the errors that count as the script's: `Exception`, and that of torch's distributed checkpoints, which is none."""
    checkpoints = sys.modules.get("torch.distributed.checkpoint.api")
    return (Exception,) if checkpoints is None else (Exception, checkpoints.CheckpointException)
