"""Detectors of other packages: entry points of the group `understudy.detectors`, each a class or function that makes one for a job.

An orchestrator asks them beside ours, the hang watch and the heartbeats, without which it does not run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeGuard

from understudy.common import plugins
from understudy.core.nouns import Timeouts
from understudy.detectors.base import Detector

GROUP = "understudy.detectors"

Factory = Callable[[Timeouts], Detector]


def _is_factory(loaded: object) -> TypeGuard[Factory]:
    return callable(loaded)


@cache
def factories() -> dict[str, Factory]:
    """By name. Raises `ValueError` for an entry point that is none."""
    return plugins.found(GROUP, _is_factory, "maker of detectors")
