"""The context that every part of a rank works with."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.worker.generation.membership import Membership
from understudy.worker.generation.notices import Notices
from understudy.worker.generation.rank_state import RankState
from understudy.worker.progress import Progress


@dataclass(frozen=True)
class RankContext:
    progress: Progress  # the position of the rank
    membership: Membership  # the ranks with which it trains
    rank_state: RankState  # its state
    notices: Notices  # its warnings for the user
