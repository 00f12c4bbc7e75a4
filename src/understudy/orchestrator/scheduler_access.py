"""The orchestrator's access to the scheduler in whose allocation it runs, and the command for nodes that are added later."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from understudy.common.names import CLAIM, CLAIM_VARIABLE, TOKEN_VARIABLE
from understudy.orchestrator.security import load_or_create_token
from understudy.schedulers.base import Allocation, Work
from understudy.schedulers.registry import allocation


@dataclass(frozen=True)
class SchedulerAccess:
    allocate: Callable[[], Allocation | None]  # may take a while, and raise `SchedulerFailed`
    work: Callable[[int], Work]  # the command for a node that is claimed under this number


def from_scheduler(name: str, run_dir: Path) -> SchedulerAccess | None:
    """Return the access that this scheduler provides; None for a job that was started on its nodes without a scheduler."""
    if not name:
        return None
    file = run_dir / CLAIM
    claim: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"options": [], "config": {}, "first": 0}

    def work(number: int) -> Work:
        config = {**claim["config"], "claim": number, "node_rank": claim["first"] + number}
        command = (sys.executable, "-P", "-m", "understudy.cli.claimed")
        return Work(f"claim {number}", command, {CLAIM_VARIABLE: json.dumps(config), TOKEN_VARIABLE: load_or_create_token(run_dir)})

    return SchedulerAccess(partial(allocation, name, os.environ, claim["options"]), work)
