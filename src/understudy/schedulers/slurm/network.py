"""Which nodes are near each other, as Slurm has been told: its leaf switches (`topology/tree`) or blocks (`topology/block`)."""

from __future__ import annotations

import re

from understudy.schedulers.base import SchedulerAway, SchedulerFailed
from understudy.schedulers.slurm import commands

_UNIT = re.compile(r"^(?:SwitchName=\S+ Level=0|BlockName=\S+) .*?\bNodes=(\S+)", re.MULTILINE)


def outside(node: str) -> list[str]:
    """In Slurm's notation, all nodes that have another leaf switch, or block, than this one; none if Slurm knows of no network. Raises
    `SchedulerAway`.
    """
    try:
        near = _UNIT.findall(commands.run("scontrol", "show", "topology", node))
        return [nodes for nodes in _UNIT.findall(commands.run("scontrol", "show", "topology")) if nodes not in near] if near else []
    except SchedulerAway:
        raise
    except SchedulerFailed:  # that a preference is not known keeps nobody from getting a node
        return []
