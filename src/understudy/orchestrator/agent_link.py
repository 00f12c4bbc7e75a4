"""An agent's connection, for code that sends messages to the agent."""

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
    """Return a reason for closing, shortened to the available space."""
    return reason.encode()[:REASON].decode(errors="ignore")


@dataclass(frozen=True)
class Close:
    """Ends a connection. With POLICY_VIOLATION an agent does not try again."""

    code: int
    reason: str


class AgentLink:
    """One agent's connection: messages are sent in the order in which they are put into `outbox`."""

    def __init__(self, node: str, instance: str = "", now: float = 0.0, position: str = "") -> None:
        self.node = node
        self.instance = instance  # of its agent (`NodeJoined`)
        self.heard = now  # the time of its last message, by the event loop's clock
        self.position = position  # the position in the journal that its agent knows; "": an earlier version without positions
        self.outbox: asyncio.Queue[str | Close] = asyncio.Queue()

    def report(self, position: str) -> None:
        """Report the position in the journal to the agent, before any command that depends on it."""
        if self.position not in ("", position):
            self.position = position
            self.outbox.put_nowait(encode(Journalled(position)))
