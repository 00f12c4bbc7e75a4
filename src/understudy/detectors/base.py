"""What a detector is: it looks at a job, and says of which worker or node there is evidence that it is lost. No I/O, no clock.

Other packages add detectors (`registry`): whoever writes one needs this module, and of ours nothing else but the types that it names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from understudy.common.page_view import PageView
from understudy.core.nouns import LossCause


@dataclass(frozen=True)
class Evidence:
    """That `worker`, or else `node`, is lost. `happened`: unix time of its last sign of life, or of the job's last progress."""

    worker: str
    detail: str  # for the journal and the user
    happened: float
    node: str = ""
    cause: LossCause = LossCause.HUNG  # of a worker


@dataclass(frozen=True)
class Reading:
    """The pages of some workers of one node, read when its host's monotonic clock showed `clock`; they came `at` (unix time)."""

    pages: Mapping[str, PageView]
    clock: float
    at: float


@dataclass(frozen=True)
class Scene:
    """A job at a moment: `now` by a monotonic clock, `at` in unix time. `readings`: what has come since the last one."""

    now: float
    at: float
    ranks: Mapping[int, str] = field(default_factory=dict)  # the workers that hold them
    idle: Collection[str] = ()  # all other workers that are there
    readings: Sequence[Reading] = ()


class Detector(Protocol):
    def evidence(self, scene: Scene) -> Sequence[Evidence]:
        """Asked about once a second, as long as the job runs. What is said once is acted on at once."""
        ...
