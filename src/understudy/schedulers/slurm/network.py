"""Find nodes that are near each other in Slurm's topology: its leaf switches (`topology/tree`) or blocks (`topology/block`)."""

from __future__ import annotations

import re

from understudy.schedulers.base import SchedulerAway, SchedulerFailed
from understudy.schedulers.slurm import commands

_UNIT = re.compile(r"^(?:SwitchName=\S+ Level=0|BlockName=\S+) .*?\bNodes=(\S+)", re.MULTILINE)


def outside(node: str) -> list[str]:
    """Return, in Slurm's notation, all nodes with another leaf switch or block than this one; none if Slurm has no topology.

    Raises `SchedulerAway`.
    """
    try:
        near = _UNIT.findall(commands.run("scontrol", "show", "topology", node))
        return [nodes for nodes in _UNIT.findall(commands.run("scontrol", "show", "topology")) if nodes not in near] if near else []
    except SchedulerAway:
        raise
    except SchedulerFailed:  # an unknown preference must not prevent a claim
        return []
