"""The events of the rail agent: what `understudy network rails` prints, as messages and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from understudy.messages import network_rails
from understudy.messages.base import Text
from understudy.network.paths import AnswersAgain, Cause, Restored, Stalled, StaysDown, Withdrawn


@dataclass(frozen=True)
class Began:
    host: str
    rails: tuple[str, ...]
    peers: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    host: str


@dataclass(frozen=True)
class LinkChanged:
    rail: str
    works: bool


@dataclass(frozen=True)
class NextHopWithdrawn:
    change: Withdrawn
    seconds: float  # from the first lost probe, or from when the link was seen to be down, until the route was changed


@dataclass(frozen=True)
class Refused:
    reason: str  # a message of our own


Event = Began | Ended | LinkChanged | NextHopWithdrawn | Restored | StaysDown | Stalled | AnswersAgain | Refused

CAUSES = {
    Cause.LINK: "its link is down",
    Cause.PROBES: "probes are not answered there, but on another rail",
    Cause.EARLIER: "it was withdrawn before this agent began",
}


def text(event: Event) -> Text | str:
    """Return the message about an event."""
    match event:
        case Began():
            return network_rails.BEGAN(host=event.host, rails=", ".join(event.rails), peers=", ".join(event.peers))
        case Ended():
            return network_rails.ENDED(host=event.host)
        case LinkChanged():
            return network_rails.LINK_UP(rail=event.rail) if event.works else network_rails.LINK_DOWN(rail=event.rail)
        case NextHopWithdrawn(change, seconds):
            return network_rails.WITHDRAWN(
                peer=change.peer, rail=change.rail, cause=CAUSES[change.cause], seconds=f"{seconds:.2f}", hold=f"{change.hold:g}"
            )
        case Restored():
            message = network_rails.RESTORED_EARLY if event.early else network_rails.RESTORED
            return message(peer=event.peer, rail=event.rail, seconds=f"{event.seconds:.1f}")
        case StaysDown():
            return network_rails.STAYS_DOWN(peer=event.peer, rail=event.rail, cause=CAUSES[event.cause], seconds=f"{event.seconds:.0f}")
        case Stalled():
            return network_rails.STALLED(peer=event.peer, seconds=f"{event.seconds:.1f}")
        case AnswersAgain():
            return network_rails.ANSWERS_AGAIN(peer=event.peer, seconds=f"{event.seconds:.1f}")
        case Refused():
            return event.reason


def as_values(event: Event, at: float) -> Mapping[str, object]:
    """Return an event as plain values. `at`: unix time."""
    shown = text(event)
    if isinstance(event, NextHopWithdrawn):
        values = {**asdict(event.change), "seconds": event.seconds}
        del values["since"]  # by a clock that only this process has
    else:
        values = asdict(event)
    return {"at": at, "event": type(event).__name__, "code": shown[:6], **values, "text": shown}
