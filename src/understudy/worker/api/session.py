"""The objects that the bootstrap of a worker passes to `understudy.join` in the same process. None in a process without an agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from understudy.core.commands import Prepare

if TYPE_CHECKING:
    from understudy.core.commands import Assign
    from understudy.worker.guards.file_access import FileAccessGuard
    from understudy.worker.process.control import Control
    from understudy.worker.step.runtime import Runtime
    from understudy.worker.transport.rendezvous import StoreServer


@dataclass
class Session:
    control: Control
    role: Assign | Prepare
    server: StoreServer
    when_joined: Callable[[Runtime], None] | None = None  # for listeners inside a worker
    runtime: Runtime | None = None
    opened: FileAccessGuard | None = None  # on a newcomer: guards the files that its script opens

    @property
    def newcomer(self) -> bool:
        """Return whether it runs the script as a rank that another worker has, or had."""
        return isinstance(self.role, Prepare) or self.role.newcomer


current: Session | None = None
