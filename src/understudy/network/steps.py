"""What has to be done on a host so that its address is routed over all rails: steps, each with its way back.

`wanted` lists the steps of a host, in their order. A step knows the command that does the same, whether its effect is there, how to do
it, and how to revert it. Reverting never touches what another program has changed since.

Why each setting:

- `fib_multipath_hash_policy` 1: the rail of a connection depends on its ports, too, so connections of the same two hosts use all rails.
- `ignore_routes_with_linkdown` of each rail: the kernel itself skips a next hop whose device has no carrier.
- `rp_filter` 2 of each rail: packets from a host address are accepted on every rail. The strict mode (1) would drop those that arrive on
  another rail than the one that the answer takes; 2 still drops packets from addresses that cannot be reached at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from understudy.messages import network_rails
from understudy.network.configuration import BadNetwork, Network
from understudy.network.kernel import PROTOCOL, Hop, Kernel, Route, dotted, route_command


class Outcome(StrEnum):
    """The result of reverting a step."""

    RESTORED = "restored"
    GONE = "gone"  # its effect was not there any more
    KEPT = "kept"  # another program has changed it since, or uses it: left as it is


class _Step(ABC):
    @property
    @abstractmethod
    def key(self) -> tuple[str, str]:
        """What it changes: a later step with the same key replaces it."""

    @property
    @abstractmethod
    def command(self) -> str:
        """The command that does the same."""

    @abstractmethod
    def is_there(self, kernel: Kernel) -> bool:
        """Return whether its effect is there. Raises `BadNetwork` if something else is in its place."""

    @abstractmethod
    def do(self, kernel: Kernel) -> None:
        """Raises `KernelRefused`."""

    @abstractmethod
    def revert(self, kernel: Kernel) -> Outcome:
        """Raises `KernelRefused`."""


@dataclass(frozen=True)
class BridgeStep(_Step):
    """An empty bridge, to carry the host address: unlike `lo`, it can be named in GLOO_SOCKET_IFNAME."""

    name: str
    kind: Literal["bridge"] = "bridge"

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def command(self) -> str:
        return f"ip link add {self.name} up type bridge"

    def is_there(self, kernel: Kernel) -> bool:
        link = kernel.links().get(self.name)
        if link is not None and (link.kind != "bridge" or not link.up or link.ports):
            raise BadNetwork(network_rails.DEVICE_TAKEN(device=self.name))
        return link is not None

    def do(self, kernel: Kernel) -> None:
        kernel.add_bridge(self.name)

    def revert(self, kernel: Kernel) -> Outcome:
        link = kernel.links().get(self.name)
        if link is None:
            return Outcome.GONE
        if link.kind != "bridge" or link.ports or any(device == self.name for _, device in kernel.addresses()):
            return Outcome.KEPT
        kernel.remove_bridge(self.name)
        return Outcome.RESTORED


@dataclass(frozen=True)
class AddressStep(_Step):
    address: str
    device: str
    kind: Literal["address"] = "address"

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.address

    @property
    def command(self) -> str:
        return f"ip address add {self.address}/32 dev {self.device}"

    def is_there(self, kernel: Kernel) -> bool:
        devices = {device for address, device in kernel.addresses() if address == self.address}
        if devices - {self.device}:
            raise BadNetwork(network_rails.ADDRESS_TAKEN(address=self.address, device=", ".join(sorted(devices - {self.device}))))
        return bool(devices)

    def do(self, kernel: Kernel) -> None:
        kernel.add_address(self.address, self.device)

    def revert(self, kernel: Kernel) -> Outcome:
        if (self.address, self.device) not in kernel.addresses():
            return Outcome.GONE
        kernel.remove_address(self.address, self.device)
        return Outcome.RESTORED


@dataclass(frozen=True)
class SettingStep(_Step):
    """A value below /proc/sys."""

    name: str
    value: str
    before: str
    kind: Literal["setting"] = "setting"

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def command(self) -> str:
        return f"sysctl -w {dotted(self.name)}={self.value}"

    def is_there(self, kernel: Kernel) -> bool:
        return kernel.setting(self.name) == self.value

    def do(self, kernel: Kernel) -> None:
        kernel.set_setting(self.name, self.value)

    def revert(self, kernel: Kernel) -> Outcome:
        found = kernel.setting(self.name)
        if found is None or found == self.before:
            return Outcome.GONE
        if found != self.value:
            return Outcome.KEPT
        kernel.set_setting(self.name, self.before)
        return Outcome.RESTORED


@dataclass(frozen=True)
class RouteStep(_Step):
    """The route to a peer. The rail agent withdraws and restores its next hops, so some of them may be missing."""

    destination: str
    source: str
    hops: tuple[Hop, ...]
    kind: Literal["route"] = "route"

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.destination

    @property
    def command(self) -> str:
        return route_command(self._route(self.hops))

    def is_there(self, kernel: Kernel) -> bool:
        found = kernel.routes().get(self.destination)
        if found is None:
            return False
        if found.protocol != PROTOCOL:
            raise BadNetwork(network_rails.ROUTE_TAKEN(destination=self.destination))
        return found.source == self.source and set(found.hops) <= set(self.hops)

    def do(self, kernel: Kernel) -> None:
        """Use those rails that are set up, because the kernel refuses others. The agent adds them when they are."""
        links = kernel.links()
        hops = tuple(hop for hop in self.hops if hop.device in links and links[hop.device].up)
        kernel.set_route(self._route(hops or self.hops))

    def revert(self, kernel: Kernel) -> Outcome:
        found = kernel.routes().get(self.destination)
        if found is None:
            return Outcome.GONE
        if found.protocol != PROTOCOL:
            return Outcome.KEPT
        kernel.remove_route(self.destination)
        return Outcome.RESTORED

    def _route(self, hops: tuple[Hop, ...]) -> Route:
        return Route(self.destination, self.source, hops)


HASH = "net/ipv4/fib_multipath_hash_policy"
LINK_DOWN = "net/ipv4/conf/{device}/ignore_routes_with_linkdown"
FILTER = "net/ipv4/conf/{device}/rp_filter"

AnyStep = BridgeStep | AddressStep | SettingStep | RouteStep
Step = Annotated[AnyStep, Field(discriminator="kind")]


def wanted(network: Network, kernel: Kernel) -> list[AnyStep]:
    """Return all steps of this host, in their order. Raises `BadNetwork` if the kernel lacks a setting."""
    return [
        BridgeStep(network.bridge),
        AddressStep(network.address, network.bridge),
        *_settings(network, kernel),
        *(RouteStep(peer.address, network.address, hops(network, peer.vias)) for peer in network.peers),
    ]


def hops(network: Network, vias: tuple[str, ...]) -> tuple[Hop, ...]:
    return tuple(Hop(via, rail.device) for via, rail in zip(vias, network.rails, strict=True))


def _settings(network: Network, kernel: Kernel) -> Iterator[SettingStep]:
    values = [(HASH, "1")]
    for rail in network.rails:
        values += [(LINK_DOWN.format(device=rail.device), "1"), (FILTER.format(device=rail.device), "2")]
    for name, value in values:
        if (before := kernel.setting(name)) is None:
            raise BadNetwork(network_rails.NO_SETTING(setting=dotted(name)))
        yield SettingStep(name, value, before)
