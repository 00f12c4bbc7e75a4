"""Report a rail of this node that has failed for long, from the state that its rail agent publishes (`understudy network rails`).

A rail is down here if no path on it is up: its next hop to every peer is withdrawn, or its link is down. One path that is down says
nothing about either end, so the whole rail is looked at, and the peers are asked: with each probe, every host reports on which rails it
reaches any host at all. After `after` seconds:

- some path on the rail is up                       nothing: if the rail of another host has failed, that host reports it
- none is, and a peer reaches a third host there    this node's link is suspect: it is the only one that the rail does not reach
- none is, and no peer reaches anybody there        a note: the rail has failed for all, or there are only two hosts, and nothing shows
                                                    which end is to blame

Nothing is reported about rails while no peer answers at all, and a note if the rail agent does not run.

Limits: the agent runs this detector only where a file of detectors has its section. A suspect link counts against the node, so that the
policy can move its ranks while the other rails still carry them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from understudy.common.rail_state import DEFAULT, RailState, RailView, UnreadableState, read
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject
from understudy.messages import network_rails

AFTER = 300.0  # seconds for which a rail has to be down
HOLDS = 60.0  # seconds for which evidence is valid after it was last seen


class Rails(NodeDetector):
    name = "network"
    every = 10.0

    def __init__(self, state: Path = DEFAULT, after: float = AFTER, now: Callable[[], float] = time.time) -> None:
        """`state`: the file of the rail agent. `after`: seconds. `now` returns unix time."""
        self._state = state
        self._after = after
        self._now = now

    def look(self) -> list[Evidence]:
        now = self._now()
        try:
            state = read(self._state)
        except UnreadableState as error:
            return [self._unwatched(str(error), now)]
        if state.is_stale(now):
            return [self._unwatched(network_rails.STALE(host=state.host, pid=state.pid, seconds=now - state.written), now)]
        return [found for rail in state.rails if (found := self._about(rail, state, now)) is not None]

    def _about(self, rail: RailView, state: RailState, now: float) -> Evidence | None:
        paths = [path for path in state.paths if path.device == rail.device and path.peer not in state.stalled]
        if not paths or any(path.up for path in paths):
            return None
        seconds = now - max(path.since for path in paths)
        if seconds < self._after:
            return None
        here = bool(rail.elsewhere)
        message = network_rails.RAIL_DOWN_HERE if here else network_rails.RAIL_DOWN_EVERYWHERE
        detail = message(rail=rail.device, seconds=f"{seconds:.0f}", peers=len(paths), elsewhere=rail.elsewhere)
        severity, kind = (Severity.SUSPECT, "rail-down") if here else (Severity.NOTE, "rail-down-everywhere")
        return Evidence(self.name, Subject.LINK, "", severity, detail, now - seconds, kind, rail.device, now + HOLDS)

    def _unwatched(self, reason: str, now: float) -> Evidence:
        return Evidence(self.name, Subject.NODE, "", Severity.NOTE, reason, now, "rails-unwatched", until=now + HOLDS)
