"""Which checks there are, in the order in which they are run: what is quick and what others rely on comes first."""

from __future__ import annotations

from understudy.checks.base import Check
from understudy.checks.compute import Compute
from understudy.checks.detectors import Detectors
from understudy.checks.disk import Disk
from understudy.checks.gpu import Gpu
from understudy.checks.memory import Memory
from understudy.checks.network import Network
from understudy.checks.options import Options

CHECKS: dict[str, type[Check]] = {kind.name: kind for kind in (Detectors, Compute, Memory, Disk, Gpu, Network)}


def chosen(options: Options) -> list[str]:
    """Names. Raises `ValueError` for one that there is not, or if none is left."""
    for name in (*options.only, *options.skip):
        if name not in CHECKS:
            raise ValueError(f"there is no check {name!r}: there are {', '.join(CHECKS)}")
    found = [name for name in CHECKS if name in (options.only or CHECKS) and name not in options.skip]
    if not found:
        raise ValueError("no check is left to be run")
    return found
