"""Which nodes have fallen silent: their hosts are down or cut off, and no connection tells.

Every frame of an agent is a sign of life, and one without other reason to speak sends one every `heartbeat` seconds. The
watcher may itself be stopped or starved for a while; what agents sent meanwhile waits unread, so that time counts against nobody.

A rack that loses its power falls silent within one heartbeat, and its nodes should be told of together: one generation for all of them
instead of one for each. So a node that is silent for too long waits for those that are about to be, a little.
"""

from __future__ import annotations

from understudy.detectors.base import Evidence, Scene

TOGETHER = 0.25  # of the limit: silences that began within this time of each other are told of together


class Heartbeats:
    """A `Detector`. All times are in seconds of one monotonic clock, but those in a scene and in evidence that say otherwise."""

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

    def evidence(self, scene: Scene) -> list[Evidence]:
        """Of all nodes that have been silent for too long. They are forgotten: whoever comes back is heard again."""
        found = []
        for node, seconds in self.silent(scene.now).items():
            self.forget(node)
            detail = f"nothing was heard of it for {seconds:.1f} s (the host is down, or the network to it)"
            found.append(Evidence("", detail, scene.at - seconds, node))
        return found

    def silent(self, now: float) -> dict[str, float]:
        """How long each node has been silent, of those that have for too long. None of them while others are about to follow, for
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
