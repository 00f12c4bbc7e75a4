"""Collect all faults by name: those in `faults`, and those of other packages.

Other packages add faults by entry points of the group `understudy.faults`, each of which is a `Fault` (`base`).
"""

from __future__ import annotations

from functools import cache

from understudy import extensions
from understudy.chaos.base import Fault
from understudy.chaos.faults import control, device, gpu, network, process, signals
from understudy.messages import faults

GROUP = "understudy.faults"


class Registry:
    """Faults by name."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}

    def add(self, *more: Fault) -> None:
        """Add faults. Raises `ValueError` for a name that is taken."""
        for fault in more:
            if fault.name in self._faults:
                raise ValueError(faults.TWO_OF_ONE_NAME(fault=fault.name))
            self._faults[fault.name] = fault

    def all(self) -> list[Fault]:
        return list(self._faults.values())

    def find(self, name: str) -> Fault:
        """Return the fault of a name. Raises `ValueError`."""
        if name not in self._faults:
            raise ValueError(faults.NO_SUCH_FAULT(fault=name, known=", ".join(self._faults)))
        return self._faults[name]


@cache
def registry() -> Registry:
    """Return our faults, and those of installed packages. Raises `ValueError` for an entry point that is not a fault."""
    known = Registry()
    for module in (signals, process, device, network, control, gpu):
        known.add(*module.FAULTS)
    known.add(*extensions.instances(GROUP, Fault))
    return known
