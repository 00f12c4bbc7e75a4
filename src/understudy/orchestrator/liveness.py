"""When is a node taken for lost? Rules only: no I/O, no clock. Whoever asks says what time it is, so that a simulator can.

- Its agent is not connected, and its grace is over. An agent of another host has `node_lost` seconds to come back, or `GRACE` where its
  host is known to be up: it was killed, and is being started again while its workers train. The only agent of a job on one host has
  `GRACE`, and so has every agent after a restart of the orchestrator.
- Unless nothing is heard of its host in any other way either, while most agents are back and so can find us.
- Its agent is connected, and nothing comes (`detectors.heartbeats`).

Nodes that are lost at the same moment are told of together, so that they cost one generation. Two clocks are meant: `now` is in seconds of
a monotonic one, `at` in unix seconds, which what is told is in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from understudy.core.events import LostNode
from understudy.detectors.heartbeats import Heartbeats
from understudy.messages import service_jobs

MARGIN = 2.0  # seconds beyond the limit for the agent of a host that says nothing in any other way
GRACE = 15.0  # seconds for the agents to come back to an orchestrator that was started again, and for the only agent of a job at any time

SilentSince = Callable[[int, float], float | None]


@dataclass(frozen=True)
class Gone:
    """`lost`: in the order in which it happened. `silent`: those of them that are connected; a connection may wake up much later."""

    lost: tuple[LostNode, ...]
    silent: tuple[str, ...]


@dataclass(frozen=True)
class _Grace:
    """Of a node whose agent is away."""

    ends: float
    at_most: float  # the same for a node that is up
    lost: LostNode  # what becomes of it then


class Liveness:
    def __init__(
        self,
        limit: float,
        look_every: float,
        started: float,
        *,
        far: bool,
        up: Callable[[str], bool] = lambda node: False,
        silent_since: SilentSince = lambda node_rank, seconds: None,
    ) -> None:
        """`limit`: seconds without a sign of life. `gone` is going to be called every `look_every`. `started`: unix time. `far`: the nodes
        are other hosts. `up`: whether a node is known to be there by other means than the job's own connection to it. `silent_since`: the
        unix time since which nothing was heard of the host of a node rank in another way than by its agent, if that is more than so many
        seconds ago; None also where there is no other way.
        """
        self._limit = limit
        self._started = started
        self._far = far
        self._up = up
        self._silent_since = silent_since
        self._graces: dict[str, _Grace] = {}
        self._heartbeats = Heartbeats(limit, look_every)

    @property
    def waits(self) -> bool:
        """Whether any agent may still come back."""
        return bool(self._graces)

    def heard(self, node: str, now: float) -> None:
        """Something came from its agent."""
        if self._far:
            self._heartbeats.heard(node, now)

    def connected(self, node: str, now: float) -> None:
        self._graces.pop(node, None)
        self.heard(node, now)

    def disconnected(self, node: str) -> None:
        """Nothing more will be heard on that connection; `awaited` says whether another one is waited for."""
        self._heartbeats.forget(node)

    def awaited(self, node: str, now: float, at: float, *, anew: bool = False) -> None:
        """Its agent is away. `anew`: because this orchestrator was started again."""
        limit = self._limit if self._far and not anew else GRACE
        detail = service_jobs.NOT_BACK() if anew else service_jobs.DISCONNECTED(seconds=limit)
        self._graces[node] = _Grace(now + limit, now + GRACE, LostNode(node, detail, at))

    def gone(self, nodes: Mapping[str, int], connected: Collection[str], now: float, at: float) -> Gone:
        """What is lost, and told once. `nodes`: the ranks of those that are not lost yet."""
        over = [grace for grace in self._graces.values() if grace.ends <= now]
        lost = [grace.lost for grace in over if grace.at_most <= now or not self._up(grace.lost.node)]
        lost += [one for one in self._absent(nodes, connected, at) if one.node not in {known.node for known in lost}]
        silent = self._heartbeats.silent(now)
        for node, seconds in silent.items():
            self._heartbeats.forget(node)
            detail = service_jobs.SILENT(seconds=seconds)
            lost.append(LostNode(node, detail, at - seconds))
        for one in lost:
            self._graces.pop(one.node, None)
        return Gone(tuple(sorted(lost, key=lambda one: one.happened)), tuple(silent))

    def _absent(self, nodes: Mapping[str, int], connected: Collection[str], at: float) -> list[LostNode]:
        if not self._graces or at - self._started < self._limit + MARGIN or 2 * len(connected) <= len(nodes):
            return []
        found = []
        for node, rank in nodes.items():
            since = self._silent_since(rank, self._limit)
            if node in self._graces and node not in connected and since is not None:
                found.append(LostNode(node, service_jobs.SILENT_WITH_ORCHESTRATOR(seconds=at - since), since))
        return found
