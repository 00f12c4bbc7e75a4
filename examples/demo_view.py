"""Show the job of the demo while it runs: ranks, spares, loss, and the phases of an incident as they pass.

`picture` draws one view; `LiveView` keeps it on the terminal. Without a terminal it prints a plain line for each
change. All data comes from the job's HTTP API and metrics files.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 100
COLOURS = {"running": "green", "training": "green", "warm": "cyan", "prepared": "cyan", "finished": "cyan"}


@dataclass
class Moment:
    """What is known at one time."""

    title: str
    steps: int  # of the whole job
    status: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    losses: Mapping[int, float] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)  # lines that the demo adds
    marked: int = 0  # the step at which the kill was sent, 0 before


def sparkline(losses: Mapping[int, float], steps: int, marked: int, width: int) -> Text:
    """Draw the loss over all `steps` in `width` columns, the column of step `marked` in red."""
    low, high = (min(losses.values()), max(losses.values())) if losses else (0.0, 1.0)
    text = Text()
    for column in range(width):
        first, last = column * steps // width + 1, max((column + 1) * steps // width, column * steps // width + 1)
        values = [losses[step] for step in range(first, last + 1) if step in losses]
        if not values:
            text.append("·", style="dim")
            continue
        height = (sum(values) / len(values) - low) / (high - low or 1.0)
        style = "bold red" if marked and first <= marked <= last else "blue"
        text.append(BARS[round(height * (len(BARS) - 1))], style=style)
    return text


def incident_text(incident: Mapping[str, Any]) -> Text:
    text = Text(f"incident {incident['number']}:", style="bold red")
    for loss in incident["ranks"]:
        text.append(f" rank {loss['rank']} {loss['cause']}, {loss['old_worker']} -> {loss['new_worker'] or '...'}")
    text.append(f", {incident['decision']}" if incident["decision"] else "")
    if incident["seconds"] is not None:
        text.append(f", next step committed after {incident['seconds']:.2f} s", style="bold green")
    return text


def phase_table(phases: Mapping[str, float]) -> Table:
    """Draw the phases that have passed so far. Some overlap: survivors abort while the spare sets up."""
    table = Table.grid(padding=(0, 1))
    longest = max(phases.values(), default=0.0)
    for name, seconds in phases.items():
        if seconds > 0:
            bar = "█" * max(1, round(40 * seconds / longest))
            table.add_row(f"  {name}", Text(f"{seconds * 1000:8.1f} ms"), Text(bar, style="magenta"))
    return table


def _pid(holder: dict[str, Any]) -> str:
    """Show a worker's process id; "-" while it is not known."""
    return "-" if holder["pid"] is None else str(holder["pid"])


def picture(moment: Moment) -> RenderableType:
    status = moment.status
    step = max(moment.losses, default=0)
    head = Text(f"step {step}/{moment.steps}", style="bold")
    head.append(f"   loss {moment.losses[step]:.4f}" if step else "   starting")
    head.append(f"   {status.get('state', 'starting')}, generation {status.get('generation', 0)}", style="not bold")
    workers = Table(box=None, header_style="dim", padding=(0, 2))
    for column in ("", "worker", "pid", "state", "committed"):
        workers.add_column(column)
    for rank in status.get("ranks", []):
        shown = Text(str(rank["state"]), style=COLOURS.get(str(rank["state"]), "yellow"))
        workers.add_row(f"rank {rank['rank']}", str(rank["worker"]), _pid(rank), shown, str(rank["step"]))
    for spare in status.get("spares", []):
        shown = Text(str(spare["state"]), style=COLOURS.get(str(spare["state"]), "yellow"))
        workers.add_row("spare", str(spare["worker"]), _pid(spare), shown, "")
    parts: list[RenderableType] = [head, sparkline(moment.losses, moment.steps, moment.marked, WIDTH - 6), workers]
    parts += [Text(line, style="yellow") for line in moment.story]
    for incident in moment.report.get("incidents", []):
        parts += [incident_text(incident), phase_table(incident["phases"])]
    return Panel(Group(*parts), title=moment.title, width=WIDTH, border_style="blue")


def save_picture(moment: Moment, path: Path) -> None:
    """Save the picture of `moment` as an SVG file."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(picture(moment))
    console.save_svg(str(path), title="understudy")


class LiveView:
    """Show views as they come, on a terminal in place, else as lines."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._said: dict[str, str] = {}

    def __enter__(self) -> LiveView:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, moment: Moment) -> None:
        if self._live:
            self._live.update(picture(moment), refresh=True)
            return
        step = max(moment.losses, default=0)
        tenth = step // max(1, moment.steps // 10)
        if step:
            line = f"step {step}/{moment.steps}  loss {moment.losses[step]:.4f}"
            self._say("step", str(tenth), line)
        for rank in moment.status.get("ranks", []):
            name = f"rank {rank['rank']}"
            line = f"{name}: worker {rank['worker']} (pid {_pid(rank)})"
            self._say(name, line, line)
        for spare in moment.status.get("spares", []):
            line = f"spare {spare['worker']} (pid {_pid(spare)}): {spare['state']}"
            self._say(f"spare {spare['worker']}", line, line)
        for number, line in enumerate(moment.story):
            self._say(f"story {number}", line, line)
        for incident in moment.report.get("incidents", []):
            for name, seconds in incident["phases"].items():
                if seconds == 0:
                    continue
                key = f"phase {incident['number']} {name}"
                self._say(key, "", f"  {name}: {seconds * 1000:.1f} ms")
            line = incident_text(incident).plain
            self._say(f"incident {incident['number']}", line, line)

    def _say(self, key: str, value: str, line: str) -> None:
        """Print `line` if `value` has changed since `key` was last printed."""
        if self._said.get(key) != value:
            self._said[key] = value
            self.console.print(line, highlight=False, soft_wrap=True)
