"""Find nodes that have fallen silent: their hosts are down or cut off, and no closed connection shows it.

Every frame of an agent is a sign of life, and an agent with nothing else to send sends one every `heartbeat` seconds. The
watcher may itself be stopped or starved for a while; frames that agents sent meanwhile wait unread, so that time counts against no node.

A rack that loses its power falls silent within one heartbeat, and its nodes should be reported together: one generation for all of them
instead of one for each. So a node that is silent for too long waits briefly for those that are about to be.
"""

from __future__ import annotations

TOGETHER = 0.25  # of the limit: silences that began within this time of each other are reported together


class Heartbeats:
    """Track the last sign of life of each node. All times are in seconds of one monotonic clock."""

    def __init__(self, limit: float, look_every: float) -> None:
        """Prepare the watch. A node is silent after `limit`. `silent` is going to be called every `look_every`."""
        self._limit = limit
        self._look_every = look_every
        self._heard: dict[str, float] = {}
        self._looked: float | None = None

    def heard(self, node: str, now: float) -> None:
        self._heard[node] = max(now, self._heard.get(node, now))

    def forget(self, node: str) -> None:
        self._heard.pop(node, None)

    def silent(self, now: float) -> dict[str, float]:
        """Return how long each silent node has been silent, for those beyond the limit. Returns none while others are about to follow, for
        `TOGETHER` at most.
        """
        late = now - self._looked - self._look_every if self._looked is not None else 0.0
        self._looked = now
        if late > self._look_every:
            self._heard = {node: min(now, then + late) for node, then in self._heard.items()}
        soon = {node: now - then for node, then in self._heard.items() if now - then > self._limit * (1 - TOGETHER)}
        found = {node: silence for node, silence in soon.items() if silence > self._limit}
        wait = len(found) < len(soon) and all(silence <= self._limit * (1 + TOGETHER) for silence in found.values())
        return {} if wait else found
