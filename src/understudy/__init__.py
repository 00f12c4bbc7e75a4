"""Understudy keeps distributed PyTorch training running through the loss of a rank.

The training API: `understudy.join()` returns a `Job`. Importing this package does not import torch; the first use of
`join` does, so that the command line, the agent and the orchestrator run without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Job", "UnderstudyError", "__version__", "join"]

if TYPE_CHECKING:
    from understudy.worker.api.job import Job, join
    from understudy.worker.errors import UnderstudyError


def __getattr__(name: str) -> object:
    if name in ("Job", "join"):
        from understudy.worker.api import job

        return getattr(job, name)
    if name == "UnderstudyError":
        from understudy.worker.errors import UnderstudyError

        return UnderstudyError
    raise AttributeError(f"module 'understudy' has no attribute {name!r}")
