"""Which frameworks are known: ours, then those of other packages by name. Every rank goes through them in this order."""

from __future__ import annotations

from understudy import extensions
from understudy.worker.frameworks.base import FrameworkAdapter
from understudy.worker.frameworks.ddp import Ddp
from understudy.worker.frameworks.fsdp2 import Fsdp2
from understudy.worker.frameworks.pipelines import Pipelines

GROUP = "understudy.frameworks"


def adapters() -> list[type[FrameworkAdapter]]:
    """Raises `ValueError` for what another package has got wrong."""
    return [Ddp, Fsdp2, Pipelines, *extensions.classes(GROUP, FrameworkAdapter)]
