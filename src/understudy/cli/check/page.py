"""Show the page of a check: as text for people, as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from understudy.cli.check.verdict import Page, Verdict
from understudy.cli.kills import PHASES, Kill
from understudy.cli.show import seconds, size
from understudy.common.bounds import plain
from understudy.messages import script_check


def as_values(page: Page) -> dict[str, Any]:
    """Return a page as values for JSON."""
    return {**asdict(page), "exit_code": page.exit_code}


def _line(kill: Kill) -> str:
    if not kill.struck:
        return script_check.NOT_REACHED(phase=kill.phase, step=kill.step)
    took = f"recovered in {seconds(kill.seconds)}" if kill.seconds is not None else "not recovered"
    return f"step {kill.step}, {kill.phase} ({PHASES[kill.phase]}): {took}"


def view(page: Page, folder: str) -> RenderableType:
    """Show a page. `folder` has the two runs."""
    colour = "bold green" if page.verdict is Verdict.BITWISE else "bold red"
    head = Text.assemble((page.verdict.value.upper(), colour), f": {plain(page.line)}")
    volume = f"{page.tensors} tensors, {size(page.bytes)} on rank 0, and the random streams of torch, numpy and Python"
    rows: dict[str, list[str]] = {
        "differences": page.differences,
        "likely cause": page.uncovered if page.differences or page.verdict is Verdict.DIFFERS else [],
        "read": [script_check.READ(file=file) for file in page.read],
        "message": [page.message] if page.message else [],
        "kills": [_line(kill) for kill in page.kills],
        "drills": page.drills or ["none"],
        "covered": [", ".join(page.covered) or "nothing is registered", volume] if page.tensors else [],
        "adopted": [f"{', '.join(page.adopted)} (found in the script, not registered)"] if page.adopted else [],
        "not compared": page.left_out,
        "notices": page.notices,
        "grades": page.grades,
        "recovery": page.notes,
        "what to change": page.advice,
        "kept in": [f"{folder}, after {page.took:.0f} s"],
    }
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, texts in rows.items():
        for number, text in enumerate(texts):
            table.add_row(name if number == 0 else "", Text(plain(text)))
    return Group(head, Padding(table, (1, 0, 0, 0)))
