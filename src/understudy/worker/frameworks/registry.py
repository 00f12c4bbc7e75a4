"""The known frameworks: ours, then those of other packages by name. Every rank uses them in this order."""

from __future__ import annotations

from understudy import extensions
from understudy.worker.frameworks.base import FrameworkAdapter
from understudy.worker.frameworks.ddp import Ddp
from understudy.worker.frameworks.fsdp2 import Fsdp2
from understudy.worker.frameworks.pipelines import Pipelines

GROUP = "understudy.frameworks"


def adapters() -> list[type[FrameworkAdapter]]:
    """Return one adapter for each framework. Raises `ValueError` for an error of another package."""
    return [Ddp, Fsdp2, Pipelines, *extensions.classes(GROUP, FrameworkAdapter)]
