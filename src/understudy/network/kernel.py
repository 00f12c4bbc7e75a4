"""Query and change this host's network: devices, addresses, routes and settings, by netlink and /proc/sys.

`Kernel` is what the rest of the room needs of it, and `Netlink` the real one, by pyroute2. Every method queries the kernel again. Only
IPv4, and only the main routing table.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from understudy.messages import network_rails
from understudy.network.configuration import BadNetwork

PROTOCOL = 117  # of our routes, by which they are recognized; no routing daemon in rtnetlink.h uses it
MAIN = 254  # the main routing table
SETTINGS = Path("/proc/sys")
_UP, _CARRIER = 0x1, 0x10000  # IFF_UP, IFF_LOWER_UP
_GROUPS = 0x1 | 0x10 | 0x40  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE
_READ = 1 << 16


class KernelRefused(ValueError):
    """The kernel has refused a change or a query. The text names it, and the reason."""


@dataclass(frozen=True)
class Link:
    index: int
    up: bool  # set up by the administrator
    carrier: bool
    kind: str  # "bridge", "veth"; "": a device of hardware
    ports: int = 0  # devices that belong to it, if it is a bridge

    @property
    def works(self) -> bool:
        return self.up and self.carrier


@dataclass(frozen=True, order=True)
class Hop:
    via: str
    device: str


@dataclass(frozen=True)
class Route:
    """A route to one address."""

    destination: str
    source: str
    hops: tuple[Hop, ...]
    protocol: int = PROTOCOL


class Kernel(Protocol):
    """Everything but `setting` raises `KernelRefused`."""

    def links(self) -> Mapping[str, Link]: ...

    def addresses(self) -> list[tuple[str, str]]:
        """Return every IPv4 address, with its device."""

    def routes(self) -> Mapping[str, Route]:
        """Return the routes to single addresses, by destination."""

    def add_bridge(self, name: str) -> None:
        """Create a bridge that is up, in one change."""

    def remove_bridge(self, name: str) -> None: ...

    def add_address(self, address: str, device: str) -> None: ...

    def remove_address(self, address: str, device: str) -> None: ...

    def set_route(self, route: Route) -> None:
        """Create this route, or replace the next hops of the existing one, without a moment in which there is none."""

    def remove_route(self, destination: str) -> None: ...

    def setting(self, name: str) -> str | None:
        """Return a value below /proc/sys; None: there is no such setting."""

    def set_setting(self, name: str, value: str) -> None: ...


class Netlink:
    """The kernel that this process runs on, in the network namespace in which it was opened. Raises `KernelRefused`."""

    def __init__(self) -> None:
        """Raises `BadNetwork` if the package is missing."""
        try:
            from pyroute2 import IPRoute  # only here: it is optional, and importing it takes time
            from pyroute2.netlink.exceptions import NetlinkError
        except ImportError as error:
            raise BadNetwork(network_rails.NO_NETLINK(reason=error)) from error
        self._route: Any = IPRoute()
        self._error: type[Exception] = NetlinkError

    def close(self) -> None:
        self._route.close()

    def links(self) -> dict[str, Link]:
        with self._reported("ip link show"):
            found = list(self._route.get_links())
        masters = [link.get("master") for link in found]
        return {
            link.get("ifname"): Link(
                link["index"],
                bool(link["flags"] & _UP),
                bool(link["flags"] & _CARRIER),
                link.get(("linkinfo", "kind")) or "",
                masters.count(link["index"]),
            )
            for link in found
        }

    def addresses(self) -> list[tuple[str, str]]:
        names = self._names()
        with self._reported("ip address show"):
            return [(one.get("local"), names.get(one["index"], "")) for one in self._route.get_addr(family=socket.AF_INET)]

    def routes(self) -> dict[str, Route]:
        names = self._names()
        with self._reported("ip route show"):
            found = [one for one in self._route.get_routes(family=socket.AF_INET, table=MAIN) if one["dst_len"] == 32]
        routes = {}
        for one in found:
            several = one.get("multipath") or [one]
            hops = tuple(Hop(hop.get("gateway") or "", names.get(hop.get("oif") or 0, "")) for hop in several)
            routes[one.get("dst")] = Route(one.get("dst"), one.get("prefsrc") or "", hops, one["proto"])
        return routes

    def add_bridge(self, name: str) -> None:
        with self._reported(f"ip link add {name} up type bridge"):
            self._route.link("add", ifname=name, kind="bridge", state="up")

    def remove_bridge(self, name: str) -> None:
        with self._reported(f"ip link delete {name}"):
            self._route.link("del", index=self._index(name))

    def add_address(self, address: str, device: str) -> None:
        with self._reported(f"ip address add {address}/32 dev {device}"):
            self._route.addr("add", index=self._index(device), address=address, prefixlen=32)

    def remove_address(self, address: str, device: str) -> None:
        with self._reported(f"ip address delete {address}/32 dev {device}"):
            self._route.addr("del", index=self._index(device), address=address, prefixlen=32)

    def set_route(self, route: Route) -> None:
        with self._reported(route_command(route, "replace")):
            hops = [{"gateway": hop.via, "oif": self._index(hop.device)} for hop in route.hops]
            self._route.route("replace", dst=f"{route.destination}/32", prefsrc=route.source, proto=route.protocol, multipath=hops)

    def remove_route(self, destination: str) -> None:
        with self._reported(f"ip route delete {destination}/32 proto {PROTOCOL}"):
            self._route.route("del", dst=f"{destination}/32", proto=PROTOCOL)

    def setting(self, name: str) -> str | None:
        try:
            return (SETTINGS / name).read_text().strip()
        except FileNotFoundError:
            return None

    def set_setting(self, name: str, value: str) -> None:
        with self._reported(f"sysctl -w {dotted(name)}={value}"):
            (SETTINGS / name).write_text(value)

    def _names(self) -> dict[int, str]:
        return {link.index: name for name, link in self.links().items()}

    def _index(self, name: str) -> int:
        return socket.if_nametoindex(name)

    @contextlib.contextmanager
    def _reported(self, words: str) -> Iterator[None]:
        try:
            yield
        except (OSError, self._error) as error:
            code = getattr(error, "code", None) or getattr(error, "errno", None)
            reason = error.strerror if isinstance(error, OSError) else error.args[-1]
            message = network_rails.NOT_PERMITTED if code in (errno.EPERM, errno.EACCES) else network_rails.KERNEL_REFUSED
            raise KernelRefused(message(command=words, reason=reason or type(error).__name__)) from error


def dotted(name: str) -> str:
    """Return a setting as `sysctl` accepts it: with dots, unless the name of a device has one."""
    return name if "." in name else name.replace("/", ".")


def route_command(route: Route, verb: str = "add") -> str:
    hops = " ".join(f"nexthop via {hop.via} dev {hop.device}" for hop in route.hops)
    return f"ip route {verb} {route.destination}/32 proto {route.protocol} src {route.source} {hops}"


class Changes:
    """Wakes up when something of the network may have changed. What has changed must be queried: events can be late, stale or lost."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        self._socket.bind((0, _GROUPS))

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> bool:
        """Discard what has arrived, and return whether that was anything."""
        found = False
        while True:
            try:
                self._socket.recv(_READ)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # more than fits: the rest was lost, which is an event, too
                    raise
            found = True

    def close(self) -> None:
        self._socket.close()
