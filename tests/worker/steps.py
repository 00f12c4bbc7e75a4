"""Steps as participants get them."""

from __future__ import annotations

from typing import Any

from understudy.worker.participant import Step


def step_of(function: str = "train", kind: str = "step", **given: Any) -> Step:
    return Step(kind, function, given.pop("arguments", []), given.pop("place", [0, 0, 0]), **given)
