"""Read which hosts and rails there are: one file, the same on every host.

    bridge = "understudy0"                    # device that gets the host address; this is the default

    [[host]]
    name = "node0"
    address = "10.72.0.1"                     # host address: reachable over all rails
    rails = ["10.1.0.1", "10.2.0.1"]          # its address on each rail, in the same order on every host

    [[host]]
    ...

    [probes]                                  # optional: see `ProbeSettings`
    interval = 0.1

A host finds its own entry by the rail addresses of its devices, which also tell which device belongs to which rail.

Limits: IPv4 only. A rail is a network in which hosts reach each other without a router.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from understudy.common.bounds import plain
from understudy.detectors.configuration import Configured, Name, Period, read
from understudy.messages import network_rails

LONGEST = 1 << 20  # characters of a file
SHORTEST_TOKEN = 16  # characters
BRIDGE = "understudy0"

Rails = Annotated[tuple[IPv4Address, ...], Field(min_length=2, max_length=32)]


class BadNetwork(ValueError):
    """The configuration, the token or this host's network cannot be used. The text has a line for each mistake."""


class Host(Configured):
    """A host of the job."""

    name: Name
    address: IPv4Address
    rails: Rails


class ProbeSettings(Configured):
    """How paths are probed. All times are in seconds.

    A host sends each peer one probe per rail and interval. A probe counts as lost if no answer arrives within `patience` after the first
    answer of the same interval on another rail.
    """

    port: Annotated[int, Field(gt=0, lt=1 << 16)] = 29480  # UDP, on every rail address
    interval: Annotated[float, Field(ge=0.01, le=10, allow_inf_nan=False)] = 0.1
    patience: Annotated[float, Field(ge=0.01, le=10, allow_inf_nan=False)] = 0.25
    losses: Annotated[int, Field(ge=1, le=1000)] = 3  # lost probes in a row after which a next hop is withdrawn
    answers: Annotated[int, Field(ge=1, le=10000)] = 10  # answered probes in a row after which it is restored
    hold: Period = 2.0  # minimum time for which it stays withdrawn; doubled each time ...
    hold_most: Period = 300.0  # ... up to this
    forget: Period = 600.0  # time without a withdrawal after which `hold` counts from the beginning
    report: Period = 60.0  # time after which a path that is still withdrawn is reported again, once

    @model_validator(mode="after")
    def _ordered(self) -> ProbeSettings:
        if self.hold > self.hold_most:
            raise ValueError(network_rails.HOLD_ORDER(hold=self.hold, most=self.hold_most))
        return self


class Configuration(Configured):
    bridge: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,14}$")] = BRIDGE
    probes: ProbeSettings = ProbeSettings()
    host: Annotated[tuple[Host, ...], Field(min_length=2, max_length=4096)]

    @model_validator(mode="after")
    def _consistent(self) -> Configuration:
        count = len(self.host[0].rails)
        for host in self.host:
            if len(host.rails) != count:
                raise ValueError(network_rails.RAILS_DIFFER(host=host.name, count=len(host.rails), first=self.host[0].name, wanted=count))
        for what in ([host.name for host in self.host], [str(one) for host in self.host for one in (host.address, *host.rails)]):
            if twice := next((one for one in what if what.count(one) > 1), ""):
                raise ValueError(network_rails.GIVEN_TWICE(value=twice))
        return self


@dataclass(frozen=True)
class Rail:
    """One of this host's rails."""

    device: str
    address: str


@dataclass(frozen=True)
class Peer:
    """Another host, as this one reaches it. `vias`: its address on each rail, in the order of this host's rails."""

    name: str
    address: str
    vias: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """The network as this host sees it."""

    host: str
    address: str
    bridge: str
    rails: tuple[Rail, ...]
    peers: tuple[Peer, ...]
    probes: ProbeSettings


def read_file(path: Path) -> Configuration:
    """Read a configuration. Raises `BadNetwork`."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise BadNetwork(network_rails.UNREADABLE(path=path, reason=reason)) from error
    if len(text) > LONGEST:
        raise BadNetwork(network_rails.UNREADABLE(path=path, reason=f"it is longer than {LONGEST} characters"))
    try:
        return read(Configuration, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadNetwork(network_rails.NOT_TOML(path=path, problem=plain(str(error)))) from None
    except ValueError as error:
        raise BadNetwork("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def of_options(hosts: Sequence[str]) -> Configuration:
    """Make a configuration from options such as `node0=10.72.0.1,10.1.0.1,10.2.0.1`. Raises `BadNetwork`."""
    entries = []
    for text in hosts:
        name, _, addresses = text.partition("=")
        address, *rails = addresses.split(",")
        if not (name and address and rails):
            raise BadNetwork(network_rails.HOST_FORM(value=plain(text[:80])))
        entries.append({"name": name, "address": address, "rails": rails})
    try:
        return read(Configuration, {"host": entries})
    except ValueError as error:
        raise BadNetwork("\n".join(f"--host: {line}" for line in str(error).splitlines())) from None


def seen_from_here(configuration: Configuration, addresses: Collection[tuple[str, str]], name: str = "") -> Network:
    """Return the network as this host sees it.

    `addresses`: those of this host, each with its device. `name`: of this host's entry; "": the one that has one of these addresses as a
    rail. Raises `BadNetwork`.
    """
    me = _own_entry(configuration, {address for address, _ in addresses}, name)
    devices = [sorted({device for address, device in addresses if address == str(rail)}) for rail in me.rails]
    for rail, found in zip(me.rails, devices, strict=True):
        if len(found) != 1:
            raise BadNetwork(network_rails.RAIL_WITHOUT_DEVICE(host=me.name, address=rail, found=", ".join(found) or "none"))
    flat = [found[0] for found in devices]
    if twice := next((device for device in flat if flat.count(device) > 1), ""):
        raise BadNetwork(network_rails.RAILS_SHARE_DEVICE(host=me.name, device=twice))
    if configuration.bridge in flat:
        raise BadNetwork(network_rails.BRIDGE_IS_RAIL(device=configuration.bridge))
    rails = tuple(Rail(device, str(rail)) for device, rail in zip(flat, me.rails, strict=True))
    others = (host for host in configuration.host if host is not me)
    peers = tuple(Peer(host.name, str(host.address), tuple(map(str, host.rails))) for host in others)
    return Network(me.name, str(me.address), configuration.bridge, rails, peers, configuration.probes)


def _own_entry(configuration: Configuration, here: Collection[str], name: str) -> Host:
    known = ", ".join(host.name for host in configuration.host)
    if name:
        found = [host for host in configuration.host if host.name == name]
        if not found:
            raise BadNetwork(network_rails.NO_SUCH_HOST(name=name, known=known))
        return found[0]
    found = [host for host in configuration.host if any(str(rail) in here for rail in host.rails)]
    if len(found) != 1:
        message = network_rails.NOT_THIS_HOST if not found else network_rails.SEVERAL_ARE_THIS_HOST
        raise BadNetwork(message(known=", ".join(host.name for host in found) or known))
    return found[0]


def read_tokens(path: Path) -> list[str]:
    """Return the lines of a file of tokens: the first one signs, all are accepted, so that a token can be replaced. Raises `BadNetwork`."""
    try:
        found = list(_lines(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise BadNetwork(network_rails.TOKEN_UNREADABLE(path=path, reason=reason)) from error
    if not found or min(map(len, found)) < SHORTEST_TOKEN:
        raise BadNetwork(network_rails.TOKEN_SHORT(path=path, least=SHORTEST_TOKEN))
    return found


def _lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())
