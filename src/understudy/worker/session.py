"""What the bootstrap of a worker hands to `understudy.join` in the same process. None in a process without an agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.core.commands import Assign, Prepare
    from understudy.worker.control import Control
    from understudy.worker.rendezvous import StoreServer
    from understudy.worker.runtime import Runtime


@dataclass
class Session:
    control: Control
    role: Assign | Prepare
    server: StoreServer
    runtime: Runtime | None = None


current: Session | None = None
