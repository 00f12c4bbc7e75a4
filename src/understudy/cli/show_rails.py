"""The state of rails as tables, for `understudy network status`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from understudy.common.bounds import plain
from understudy.common.rail_state import PathView, RailState

SHOWN = 5  # failovers


def rails_view(state: RailState, now: float) -> RenderableType:
    """Return the state as tables. `now`: unix time."""
    table = Table(
        "peer", "rail", "link", "next hop", "for", "round trip", "lost probes", "failovers", title=f"rails of {plain(state.host)}"
    )
    links = {rail.device: rail.link for rail in state.rails}
    for path in state.paths:
        cells = [path.peer, path.device, links.get(path.device, "missing"), _use(path, state.stalled), f"{now - path.since:.0f} s"]
        cells += ["-" if path.rtt is None else f"{1000 * path.rtt:.2f} ms", f"{path.lost} of {path.sent}", str(path.withdrawals)]
        table.add_row(*(Text(plain(cell)) for cell in cells))
    lines = [
        f"{now - one.happened:.0f} s ago: {one.peer} off {one.device} ({one.cause}), {one.seconds:.2f} s"
        for one in state.failovers[-SHOWN:]
    ]
    ignored = f"packets ignored: {state.malformed} malformed, {state.unauthenticated} without the token, {state.unexpected} unexpected"
    return Group(table, *(Text(plain(line)) for line in [*lines, ignored]))


def _use(path: PathView, stalled: tuple[str, ...]) -> str:
    if path.peer in stalled:
        return "peer stalled"
    if path.up:
        return "in use"
    return f"withdrawn ({path.cause}{f', held for {path.held:.0f} s' if path.held else ''})"
