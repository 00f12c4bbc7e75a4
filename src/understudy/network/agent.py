"""The rail agent: keeps the routes to all peers on those rails that lead there.

One thread, one loop. It wakes up for packets, for netlink events, and at least once per half interval; then, in this order:

1. It reads all packets that have arrived, and answers questions, before it judges the time until then. So time in which this process was
   stopped counts against no rail.
2. If there was an event, or a second has passed, it queries devices, addresses and routes. What an event says is not used.
3. It decides (`paths`), and changes the routes that differ from the decision.
4. It sends the probes that are due, and publishes its state.

Routes are compared with the kernel's, not with what was set last: the kernel removes next hops of a device that is set down, and other
programs may change routes, too. If the host address is gone (`understudy network undo`), no route is changed.

It ends when `stop` becomes readable. The routes stay as they are then: a withdrawn next hop is restored by the next agent.

Both ends probe, so each withdraws its own next hop. With each packet a host reports on which rails it reaches any host at all. No route
depends on that: it shows whether this host or a whole rail has failed (`detectors.rails`).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from understudy.common.rail_state import Failover, PathView, RailState, RailView
from understudy.messages import network_rails
from understudy.network import events
from understudy.network.configuration import BadNetwork, Network, Peer, ProbeSettings, Rail
from understudy.network.kernel import PROTOCOL, Changes, Kernel, KernelRefused, Link, Route
from understudy.network.packets import Codec, Kind, question
from understudy.network.paths import Limits, Paths, Withdrawn
from understudy.network.sockets import Ignored, RailSocket
from understudy.network.steps import hops

QUERY = 1.0  # seconds between two queries without an event
TURNS = 8  # decisions per interval, at most: packets alone wake it up more often
PUBLISH = 1.0  # seconds between two states without a change
KEPT = 100  # failovers in the state
HEARD = 5.0  # seconds for which the report of a peer counts
OPEN = 10000  # questions without an answer that are remembered


@dataclass
class _Seen:
    """What the kernel has reported last."""

    links: Mapping[str, Link] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)
    address: bool = False  # whether the host address is there


def limits(settings: ProbeSettings) -> Limits:
    return Limits(
        settings.patience,
        settings.losses,
        settings.answers,
        settings.hold,
        settings.hold_most,
        settings.forget,
        settings.report,
        stall=max(1.0, 2 * settings.losses * settings.interval),
    )


class RailAgent:
    """`tell` gets every event, `publish` the state: once per second, and after every change."""

    def __init__(
        self,
        network: Network,
        kernel: Kernel,
        codec: Codec,
        tell: Callable[[events.Event], None],
        publish: Callable[[RailState], None],
    ) -> None:
        """Query the kernel, and open the sockets. Raises `BadNetwork`, `KernelRefused`."""
        self._network = network
        self._kernel = kernel
        self._tell = tell
        self._publish = publish
        self._ignored = Ignored()
        self._changes = Changes()
        self._sockets = [RailSocket(rail, network.probes.port, codec, self._ignored) for rail in network.rails]
        self._questions: dict[bytes, tuple[str, str, int]] = {}  # nonce -> device, peer's name, number of the round
        self._seen = _Seen()
        self._failovers: list[Failover] = []
        self._refusal = ""  # the last one that was reported
        self._query()
        if not self._seen.address:
            raise BadNetwork(network_rails.NOT_APPLIED(address=network.address, device=network.bridge))
        now, bound = time.monotonic(), limits(network.probes)
        devices = [rail.device for rail in network.rails]
        self._paths = {peer.name: Paths(peer.name, devices, bound, now, self._withdrawn_earlier(peer)) for peer in network.peers}
        self._senders = {(rail.device, via): peer for peer in network.peers for rail, via in zip(network.rails, peer.vias, strict=True)}
        self._links: dict[str, bool] = {}
        self._set: dict[str, tuple[Route, float]] = {}  # peer's name -> the route that was set last, and when
        self._reports: dict[str, tuple[int, float]] = {}  # peer's name -> the rails on which it reaches any host, and when it said so
        self._reaches = 0  # the same of this host
        self._note_links(now)

    def run(self, stop: int) -> None:
        """Work until `stop`, a descriptor, becomes readable."""
        interval = self._network.probes.interval
        probe = query = publish = decide = time.monotonic()
        self._tell(events.Began(self._network.host, tuple(self._links), tuple(self._paths)))
        while not self._wait(stop, interval / 2):
            now = (
                time.monotonic()
            )  # before reading: if this process is stopped in between, what arrives then was not read, and is not judged
            self._receive()
            if (event := self._changes.drain()) or now >= query:
                query = now + QUERY
                self._look_at_kernel()
                self._note_links(now)
            if not event and now < decide:
                continue
            decide = now + interval / TURNS
            changed = self._decide(now)
            if now >= probe:
                probe = max(probe + interval, now)
                self._ask(time.monotonic())
            if changed or now >= publish:
                publish = now + PUBLISH
                self._publish(self.state())
        self._publish(self.state(running=False))
        self._tell(events.Ended(self._network.host))

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        self._changes.close()

    def state(self, running: bool = True) -> RailState:
        """Return the present state, with Unix times."""
        now = time.time()
        shift = now - time.monotonic()
        return RailState(
            self._network.host,
            os.getpid(),
            now,
            running,
            tuple(self._view(number, rail) for number, rail in enumerate(self._network.rails)),
            tuple(
                PathView(
                    peer,
                    path.rail,
                    path.up,
                    "" if path.cause is None else str(path.cause),
                    path.since + shift,
                    path.rtt,
                    path.sent,
                    path.lost,
                    path.withdrawals,
                    0.0 if path.up else max(0.0, path.held_until + shift - now),
                )
                for peer, paths in self._paths.items()
                for path in paths.paths.values()
            ),
            tuple(peer for peer, paths in self._paths.items() if paths.stalled),
            tuple(self._failovers),
            self._ignored.malformed,
            self._ignored.unauthenticated,
            self._ignored.unexpected,
        )

    def _view(self, number: int, rail: Rail) -> RailView:
        link = self._seen.links.get(rail.device)
        reports = [reaches for reaches, heard in self._reports.values() if time.monotonic() - heard < HEARD]
        elsewhere = sum(reaches >> number & 1 for reaches in reports)
        return RailView(rail.device, rail.address, "missing" if link is None else "up" if link.works else "down", elsewhere)

    # -- packets ------------------------------------------------------------------------------------------------------

    def _wait(self, stop: int, seconds: float) -> bool:
        poll = select.poll()
        for descriptor in (stop, self._changes.fileno(), *(one.fileno() for one in self._sockets)):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        return any(descriptor == stop for descriptor, _ in poll.poll(seconds * 1000))

    def _receive(self) -> None:
        for one in self._sockets:
            device = one.rail.device
            for packet, sender in one.received():
                peer = self._senders.get((device, sender))
                if peer is not None:
                    self._reports[peer.name] = packet.reaches, time.monotonic()
                if peer is not None and packet.kind is Kind.QUESTION:
                    one.answer(packet, sender, self._reaches)
                elif peer is not None and self._questions.get(packet.nonce, ("", "", 0))[:2] == (device, peer.name):
                    _, _, number = self._questions.pop(packet.nonce)
                    self._paths[peer.name].answered(device, number, time.monotonic())
                else:
                    self._ignored.unexpected += 1

    def _ask(self, now: float) -> None:
        for peer in self._network.peers:
            number, devices = self._paths[peer.name].probe(now)
            for one, via in zip(self._sockets, peer.vias, strict=True):
                if one.rail.device in devices:
                    packet = question(self._reaches)
                    self._questions[packet.nonce] = one.rail.device, peer.name, number
                    one.send(packet, via)
        while len(self._questions) > max(OPEN, 100 * len(self._senders)):
            del self._questions[next(iter(self._questions))]

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _look_at_kernel(self) -> None:
        """Query the kernel. A refusal, and a socket that cannot be opened again, are reported and tried again later."""
        try:
            self._query()
        except (BadNetwork, KernelRefused) as error:
            self._report(str(error))
        else:
            if not self._seen.address:
                self._report(network_rails.NOT_APPLIED(address=self._network.address, device=self._network.bridge))

    def _query(self) -> None:
        """Query devices, addresses and routes, and follow devices that were replaced. Raises `BadNetwork`, `KernelRefused`."""
        links, addresses, routes = self._kernel.links(), self._kernel.addresses(), self._kernel.routes()
        self._seen = _Seen(links, routes, (self._network.address, self._network.bridge) in addresses)
        for one in self._sockets:
            there = one.rail.device in links and (one.rail.address, one.rail.device) in addresses
            one.follow(links[one.rail.device].index if there else None)

    def _note_links(self, now: float) -> None:
        for one in self._sockets:
            device = one.rail.device
            works = one.fileno() is not None and self._seen.links[device].works
            if self._links.get(device, True) != works:
                self._tell(events.LinkChanged(device, works))
            self._links[device] = works
            for paths in self._paths.values():
                paths.link(device, works, now)

    def _decide(self, now: float) -> bool:
        """Return whether anything has changed."""
        changes = [change for paths in self._paths.values() for change in paths.judge(now)]
        reached = (any(paths.reaches(rail.device) for paths in self._paths.values()) for rail in self._network.rails)
        self._reaches = sum(works << number for number, works in enumerate(reached))
        for peer in self._network.peers:
            self._follow_decision(peer, now)
        for change in changes:
            if isinstance(change, Withdrawn):
                seconds = time.monotonic() - change.since
                self._failovers.append(Failover(change.peer, change.rail, str(change.cause), time.time(), seconds))
                del self._failovers[:-KEPT]
                self._tell(events.NextHopWithdrawn(change, seconds))
            else:
                self._tell(change)
        return bool(changes)

    def _follow_decision(self, peer: Peer, now: float) -> None:
        """Set the route if the kernel has another one. Next hops on devices that are set down are left out: the kernel refuses them.

        The same route is set again only after a while, so that a contest with another program does not take all the time of both.
        """
        rails = self._paths[peer.name].hops
        every = hops(self._network, peer.vias)
        usable = tuple(hop for hop in every if hop.device in rails and (link := self._seen.links.get(hop.device)) and link.up)
        found = self._seen.routes.get(peer.address)
        if not usable or not self._seen.address or (found is not None and (found.protocol != PROTOCOL or found.hops == usable)):
            return
        wanted = Route(peer.address, self._network.address, usable)
        last, when = self._set.get(peer.name, (None, 0.0))
        if last == wanted and now - when < QUERY:
            return
        self._set[peer.name] = wanted, now
        try:
            self._kernel.set_route(wanted)
        except KernelRefused as error:
            self._report(str(error))
        else:
            self._refusal = ""
        self._seen.routes = {**self._seen.routes, peer.address: wanted}  # the next query shows whether that is so

    def _withdrawn_earlier(self, peer: Peer) -> list[str]:
        """Return the rails that the present route to a peer does not use."""
        found = self._seen.routes.get(peer.address)
        if found is None or found.protocol != PROTOCOL:
            return []
        return sorted({hop.device for hop in hops(self._network, peer.vias)} - {hop.device for hop in found.hops})

    def _report(self, refusal: str) -> None:
        """Report a refusal of the kernel, once."""
        if refusal != self._refusal:
            self._refusal = refusal
            self._tell(events.Refused(refusal))
