"""The state that the rail agent of a host publishes in a file: written by `understudy.network`, read by the command line and a detector.

The file is JSON. It is replaced as a whole, so a reader never sees half of it. All times are Unix times, all durations seconds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from understudy.messages import network_rails

DEFAULT = Path("/run/understudy/rails.json")
STALE = 10.0  # seconds after which the agent counts as gone; it writes every second
LONGEST = 1 << 24  # bytes

LinkState = Literal["up", "down", "missing"]


class UnreadableState(ValueError):
    """There is no state to read. The text gives the reason."""


@dataclass(frozen=True)
class RailView:
    """One of this host's rails."""

    device: str
    address: str
    link: LinkState
    elsewhere: int  # peers that have reported within the last seconds that they reach any host on this rail


@dataclass(frozen=True)
class PathView:
    """One rail to one peer."""

    peer: str
    device: str
    up: bool  # its next hop is in use
    cause: str  # why it is not: "link", "probes", "earlier"; "": it is
    since: float
    rtt: float | None  # of the last answered probe
    sent: int  # probes
    lost: int
    withdrawals: int
    held: float  # time for which it stays withdrawn at least


@dataclass(frozen=True)
class Failover:
    """A next hop that was withdrawn."""

    peer: str
    device: str
    cause: str
    happened: float
    seconds: float  # from the first lost probe, or from when the link was seen to be down, until the route was changed


@dataclass(frozen=True)
class RailState:
    host: str
    pid: int
    written: float
    running: bool  # false: the agent has ended in order
    rails: tuple[RailView, ...]
    paths: tuple[PathView, ...]
    stalled: tuple[str, ...]  # peers that answer on no rail
    failovers: tuple[Failover, ...]  # the last ones, oldest first
    malformed: int  # packets that were ignored: not ours,
    unauthenticated: int  # not made with the token,
    unexpected: int  # from an address that is no rail of a host, or an answer to no question

    def is_stale(self, now: float) -> bool:
        return not self.running or now - self.written > STALE


_ADAPTER = TypeAdapter(RailState)


def write(path: Path, state: RailState) -> None:
    """Replace the file. Raises `OSError`."""
    replace(path, _ADAPTER.dump_json(state, indent=1))


def replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or the earlier one. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data + b"\n")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read(path: Path) -> RailState:
    """Read the file. Raises `UnreadableState`."""
    try:
        with path.open("rb") as file:
            return _ADAPTER.validate_json(file.read(LONGEST))
    except OSError as error:
        raise UnreadableState(network_rails.NO_STATE(path=path, reason=error.strerror)) from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise UnreadableState(network_rails.BAD_STATE(path=path, problem=problem)) from error


def as_values(state: RailState) -> object:
    """Return the state as plain values, for JSON."""
    return _ADAPTER.dump_python(state, mode="json")
