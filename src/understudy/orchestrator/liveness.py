"""Decide when a node is lost. Rules only: no I/O, no clock; callers pass the time, so that a simulator can.

- Its agent is not connected, and its grace period is over. An agent of another host has `node_lost` seconds to come back, or `GRACE` if its
  host is known to be up: it was killed, and is being restarted while its workers train. The only agent of a job on one host has `GRACE`,
  and so has every agent after a restart of the orchestrator.
- Exception: its host has been silent in every other way as well, while most agents are back and so can reach this orchestrator.
- Its agent is connected, and sends nothing (`detectors.heartbeats`).
- If the job could not go on without these nodes, because all good state is there, they have `GRACE` in any case: to report them sooner
  would only end a job that may be training on hosts that are merely busy.

Nodes that are lost at the same moment are reported together, so that they cost one generation. There are two clocks: `now` is in seconds of
a monotonic clock, `at` is in unix seconds and is used in reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from understudy.core.events import LostNode
from understudy.detectors.heartbeats import Heartbeats
from understudy.messages import service_jobs

MARGIN = 2.0  # seconds beyond the limit for the agent of a host that is silent in every other way
GRACE = 15.0  # seconds for the agents to come back to a restarted orchestrator, and for the only agent of a job at any time

SilentSince = Callable[[int, float], float | None]


@dataclass(frozen=True)
class Gone:
    """Nodes that are lost. `lost`: in the order in which it happened. `silent`: those of them that are connected; such a connection may
    wake up much later.
    """

    lost: tuple[LostNode, ...]
    silent: tuple[str, ...]


@dataclass(frozen=True)
class _Grace:
    """The grace period of a node whose agent is disconnected."""

    ends: float
    at_most: float  # the same for a node that is up
    lost: LostNode  # the loss that is reported when it is over


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
        needed: Callable[[Collection[str]], bool] = lambda nodes: False,
    ) -> None:
        """Create the rules for one job.

        `limit`: seconds without a sign of life. `gone` will be called every `look_every` seconds. `started`: unix time. `far`: the nodes
        are other hosts. `up`: whether a node is known to be alive by other means than the job's own connection to it. `silent_since`: the
        unix time since which the host of a node rank has been silent in every way other than its agent, if that is more than the given
        seconds ago; None also if there is no other way. `needed`: whether the loss of these nodes together would end the job.
        """
        self._limit = limit
        self._started = started
        self._far = far
        self._up = up
        self._silent_since = silent_since
        self._needed = needed
        self._graces: dict[str, _Grace] = {}
        self._heartbeats = Heartbeats(limit, look_every)

    @property
    def waits(self) -> bool:
        """Return whether any agent may still come back."""
        return bool(self._graces)

    def heard(self, node: str, now: float) -> None:
        """Record a message of the node's agent."""
        if self._far:
            self._heartbeats.heard(node, now)

    def connected(self, node: str, now: float) -> None:
        self._graces.pop(node, None)
        self.heard(node, now)

    def disconnected(self, node: str) -> None:
        """Record the end of a connection; `awaited`: whether to wait for another one."""
        self._heartbeats.forget(node)

    def awaited(self, node: str, now: float, at: float, *, restarted: bool = False) -> None:
        """Begin the grace period of a node whose agent is disconnected. `restarted`: because this orchestrator was restarted."""
        limit = self._limit if self._far and not restarted else GRACE
        detail = service_jobs.NOT_BACK() if restarted else service_jobs.DISCONNECTED(seconds=limit)
        self._graces[node] = _Grace(now + limit, now + GRACE, LostNode(node, detail, at))

    def gone(self, nodes: Mapping[str, int], connected: Collection[str], now: float, at: float) -> Gone:
        """Return the lost nodes, once. `nodes`: the ranks of those that are not lost yet."""
        over = [grace for grace in self._graces.values() if grace.ends <= now]
        over = [grace for grace in over if grace.at_most <= now or not self._up(grace.lost.node)]
        silent = self._heartbeats.silent(now)
        if self._needed({*silent, *(grace.lost.node for grace in over)}):
            over = [grace for grace in over if grace.at_most <= now]
            silent = {node: seconds for node, seconds in silent.items() if seconds >= GRACE}
        lost = [grace.lost for grace in over]
        lost += [one for one in self._absent(nodes, connected, at) if one.node not in {known.node for known in lost}]
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
