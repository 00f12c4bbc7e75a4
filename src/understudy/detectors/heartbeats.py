"""Which nodes have fallen silent: their hosts are down or cut off, and no connection tells.

Every frame of an agent is a sign of life, and one without other reason to speak sends one every `heartbeat` seconds. The
watcher may itself be stopped or starved for a while; what agents sent meanwhile waits unread, so that time counts against nobody.
"""

from __future__ import annotations


class Heartbeats:
    """All times are in seconds of one monotonic clock."""

    def __init__(self, limit: float, look_every: float) -> None:
        """A node is silent after `limit`. `silent` is going to be called every `look_every`."""
        self._limit = limit
        self._look_every = look_every
        self._heard: dict[str, float] = {}
        self._looked: float | None = None

    def heard(self, node: str, now: float) -> None:
        self._heard[node] = max(now, self._heard.get(node, now))

    def forget(self, node: str) -> None:
        self._heard.pop(node, None)

    def silent(self, now: float) -> dict[str, float]:
        """How long each node has been silent, of those that have for too long."""
        late = now - self._looked - self._look_every if self._looked is not None else 0.0
        self._looked = now
        if late > self._look_every:
            self._heard = {node: min(now, then + late) for node, then in self._heard.items()}
        return {node: now - then for node, then in self._heard.items() if now - then > self._limit}
