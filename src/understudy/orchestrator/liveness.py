"""Which nodes are lost: rules without a clock or a network of their own, so that a simulator runs the same ones.

A node is lost when nothing has been heard of it for `Timeouts.node_lost` seconds, whether its connection has ended or is only silent;
after a restart of the orchestrator agents get `GRACE` seconds to find it. The only node of `understudy run` is this very host: it is
given `GRACE` seconds, too. A host of which nothing is heard in any other way either (`silent_since`) gets less: see `_absent`.

Two clocks are passed in: `now`, monotonic, by which limits are measured, and `wall`, unix time, in which losses are told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from understudy.core.events import LostNode
from understudy.detectors.heartbeats import Heartbeats

MARGIN = 2.0  # seconds beyond `Timeouts.node_lost` for the agent of a host that says nothing in any other way
GRACE = 15.0  # seconds for the agents to come back to an orchestrator that was started again, and for the only agent of a job at any time
WATCH = 0.2  # seconds between two looks for silent nodes


@dataclass(frozen=True)
class _Grace:
    """Of a node whose agent is away."""

    ends: float
    at_most: float  # the same for a node that is up
    lost: LostNode  # what becomes of it then


@dataclass(frozen=True)
class Losses:
    """What a look has found."""

    lost: tuple[LostNode, ...]  # the earliest first
    silent: tuple[str, ...]  # those of them that are still connected: a connection may wake up much later


class Liveness:
    def __init__(
        self,
        node_lost: float,
        resumed: float,
        *,
        far: bool,
        up: Callable[[str], bool] = lambda node: False,
        silent_since: Callable[[int, float], float | None] = lambda node_rank, seconds: None,
    ) -> None:
        """`node_lost`: seconds. `resumed`: unix time at which this orchestrator began. `far`: the nodes are other hosts. `up`: whether a
        node is known to be there by other means than the job's own connection to it. `silent_since`: the unix time since which nothing was
        heard of a node's host (by node rank), in another way than by its agent, if that is more than so many seconds ago; None also
        where there is no other way.
        """
        self._node_lost = node_lost
        self._resumed = resumed
        self._far = far
        self._up = up
        self._silent_since = silent_since
        self._graces: dict[str, _Grace] = {}
        self._heartbeats = Heartbeats(node_lost, WATCH)

    @property
    def awaited(self) -> Collection[str]:
        """Nodes whose agents may still come (again)."""
        return self._graces.keys()

    def resumed(self, node: str, now: float, wall: float) -> None:
        """The journal knows this node, and its agent is not here yet."""
        self._grant(node, GRACE, "its agent did not come back after the orchestrator was started again", now, wall)

    def connected(self, node: str, now: float) -> None:
        self._graces.pop(node, None)
        self.heard(node, now)

    def heard(self, node: str, now: float) -> None:
        if self._far:
            self._heartbeats.heard(node, now)

    def disconnected(self, node: str) -> None:
        """Its connection is gone, and with it what it says. Not yet the node."""
        self._heartbeats.forget(node)

    def wait_for(self, node: str, now: float, wall: float) -> None:
        """Its agent was disconnected and may come again."""
        limit = self._node_lost if self._far else GRACE
        self._grant(node, limit, f"its agent was disconnected for more than {limit:g} s", now, wall)

    def _grant(self, node: str, limit: float, detail: str, now: float, wall: float) -> None:
        """So many seconds. Where the node is up it has `GRACE`: the agent was killed, and is started again while its workers train."""
        self._graces[node] = _Grace(now + limit, now + GRACE, LostNode(node, detail, wall))

    def look(self, nodes: Mapping[str, int], connected: Collection[str], now: float, wall: float) -> Losses:
        """Every `WATCH` seconds. `nodes`: node ranks of those that are not lost, by name. Who is lost is not known here any more."""
        over = [grace for grace in self._graces.values() if grace.ends <= now]
        lost = [grace.lost for grace in over if grace.at_most <= now or not self._up(grace.lost.node)]
        lost += [gone for gone in self._absent(nodes, connected, wall) if gone.node not in {known.node for known in lost}]
        silent = self._heartbeats.silent(now)
        for node, seconds in silent.items():
            self._heartbeats.forget(node)
            detail = f"nothing was heard of it for {seconds:.1f} s (the host is down, or the network to it)"
            lost.append(LostNode(node, detail, wall - seconds))
        for gone in lost:
            self._graces.pop(gone.node, None)
        return Losses(tuple(sorted(lost, key=lambda gone: gone.happened)), tuple(silent))

    def _absent(self, nodes: Mapping[str, int], connected: Collection[str], wall: float) -> list[LostNode]:
        """After a restart of the orchestrator an agent has `GRACE` to come back, but not so long if nothing is heard of its host in any
        other way either, while most agents are back and so can find us: its host is down, or the network to it.
        """
        if not self._graces or wall - self._resumed < self._node_lost + MARGIN or 2 * len(connected) <= len(nodes):
            return []
        found = []
        for name, node_rank in nodes.items():
            since = self._silent_since(node_rank, self._node_lost)
            if name in self._graces and name not in connected and since is not None:
                found.append(LostNode(name, f"nothing was heard of it for {wall - since:.1f} s, nor of its orchestrator", since))
        return found
