"""What every part of a rank works with."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.worker.generation.membership import Membership
from understudy.worker.generation.notices import Notices
from understudy.worker.generation.rank_state import RankState
from understudy.worker.progress import Progress


@dataclass(frozen=True)
class RankContext:
    progress: Progress  # where the rank is
    membership: Membership  # with whom it trains
    rank_state: RankState  # what it has
    notices: Notices  # what it tells its user
