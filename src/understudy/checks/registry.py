"""The classes of the checks that `options` names."""

from __future__ import annotations

from understudy.checks.base import Check
from understudy.checks.compute import Compute
from understudy.checks.detectors import Detectors
from understudy.checks.disk import Disk
from understudy.checks.gpu import Gpu
from understudy.checks.memory import Memory
from understudy.checks.network import Network
from understudy.checks.options import Name

CHECKS: dict[Name, type[Check]] = {
    "detectors": Detectors,
    "compute": Compute,
    "memory": Memory,
    "disk": Disk,
    "gpu": Gpu,
    "network": Network,
}
