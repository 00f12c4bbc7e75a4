"""An agent's connection, as those see it who have something to say to the agent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from understudy.links.messages import Journalled, encode

POLICY_VIOLATION = 1008
TRY_LATER = 1013
REPLACED = 4000
SILENT = 4001
ASIDE = 4002
REASON = 123  # bytes of a reason for closing (RFC 6455, 5.5)


def shortened(reason: str) -> str:
    """Return as much of a reason for closing as there is room for."""
    return reason.encode()[:REASON].decode(errors="ignore")


@dataclass(frozen=True)
class Close:
    """Ends a connection. With POLICY_VIOLATION an agent does not try again."""

    code: int
    reason: str


class AgentLink:
    """One agent's connection: what is put into `outbox` is sent in that order."""

    def __init__(self, node: str, instance: str = "", now: float = 0.0, position: str = "") -> None:
        self.node = node
        self.instance = instance  # of its agent (`NodeJoined`)
        self.heard = now  # when, by the event loop's clock
        self.position = position  # in the journal, of which its agent knows; "": an earlier version, which does not ask
        self.outbox: asyncio.Queue[str | Close] = asyncio.Queue()

    def report(self, position: str) -> None:
        """Tell the agent how far the journal is, before anything that depends on it."""
        if self.position not in ("", position):
            self.position = position
            self.outbox.put_nowait(encode(Journalled(position)))
