"""Which detectors look at a node: those that ship, and those of other packages."""

from __future__ import annotations

from understudy import extensions
from understudy.detectors.base import GROUP, AnyDetector, NodeDetector
from understudy.detectors.kernel import Kernel
from understudy.detectors.nvml import Nvml

BUILT_IN: tuple[type[NodeDetector], ...] = (Nvml, Kernel)


def installed() -> list[type[NodeDetector]]:
    """Those of other packages. Raises `ValueError` for what one has got wrong."""
    kinds = extensions.classes(GROUP, AnyDetector)
    return [kind for kind in kinds if issubclass(kind, NodeDetector)]
