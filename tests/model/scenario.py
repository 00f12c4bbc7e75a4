"""A way to something wrong, as a scenario that can be run and read (`tests/scenarios/language.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tests.model.bounds import Bounds
from tests.scenarios.language import Scenario
from understudy.core import events
from understudy.core.model import BuddyCopyRef, Position

_FIRST = ("worker", "node", "timer", "rank", "reason")


def scenario(bounds: Bounds, handled: Iterable[events.Event], why: str) -> str:
    """Return the events with the machine's answer to each."""
    replenish = "yes" if bounds.replenish else "no"
    job = f"job world={bounds.ranks} nodes={bounds.nodes} spares={bounds.spares} replenish={replenish} prepared={bounds.prepared}"
    lines = [f"# {why}", f"{job} admission={int(bounds.admission)} home_after={int(bounds.home_after)} floating={bounds.floating}"]
    return Scenario().run("\n".join([*lines, *map(_line, handled), "? ranks"]))


def _line(event: events.Event) -> str:
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    subject = next((name for name in _FIRST if name in fields), "")
    words = [type(event).__name__, str(fields.pop(subject))] if subject else [type(event).__name__]
    return "> " + " ".join([*words, *(f"{name}={_value(value)}" for name, value in fields.items() if value not in ("", ()))])


def _value(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case Position():
            return f"{value.transaction}/{value.stand}"
        case tuple():
            return ",".join(f"{copy.rank}@{copy.transaction}" for copy in value if isinstance(copy, BuddyCopyRef))
        case str() if " " in value:
            return f'"{value}"'
        case _:
            return str(value)
