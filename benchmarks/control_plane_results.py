"""Collect the measurements of `control_plane.py`, and print them as a table."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from recovery import machine

ROWS = {
    "detect": "the node's silence to the orchestrator's knowing of it",
    "first command": "knowing to the first command that an agent has read",
    "last command": "knowing to the last Abort, Assign or KillWorker of the first wave",
    "wave": "the first command to the last",
    "decision": "the last Quiesced to the last Recover",
    "closed": "knowing to every rank's commit having been handled",
}


@dataclass
class Loss:
    """One lost node. Seconds, by the names in `ROWS`."""

    node: str
    seconds: dict[str, float]
    frames: int  # that agents received from the loss to the last Recover
    incident: dict[str, Any]


@dataclass
class Result:
    agents: int
    ranks: int
    spare_nodes: int
    assigned_seconds: float  # from the last agent's joining to the last Assign
    joining_seconds: float  # from the first connection to the last agent's joining
    processor_share: float  # of one core, in the steady state
    memory_mib: float
    idle_memory_mib: float  # before the first agent came
    frames_per_second: float  # of pages, wanted
    losses: list[Loss] = field(default_factory=list)
    memory_after_mib: float = 0.0  # after the losses
    status_seconds: float = 0.0
    events: int = 0  # in the journal
    journal_mib: float = 0.0
    replay_seconds: float = 0.0  # to an orchestrator that serves again
    back_seconds: float = 0.0  # from there until all agents are connected again
    after_restart: Loss | None = None

    def rows(self) -> dict[str, list[float]]:
        return {name: [loss.seconds[name] for loss in self.losses] for name in ROWS}


def line(loss: Loss) -> str:
    return f"last command {loss.seconds['last command']:.3f} s, closed {loss.seconds['closed']:.3f} s after the orchestrator knew"


def show(results: list[Result], console: Console) -> Table:
    table = Table("", *(f"{result.agents} agents" for result in results), title="control plane", title_justify="left")

    def row(name: str, value: Callable[[Result], str]) -> None:
        table.add_row(name, *(value(result) for result in results))

    def spread(name: str) -> Callable[[Result], str]:
        def text(result: Result) -> str:
            values = result.rows()[name]
            return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else "-"

        return text

    row("ranks", lambda r: str(r.ranks))
    row("all assigned, s", lambda r: f"{r.assigned_seconds:.2f}")
    row("steady processor share", lambda r: f"{r.processor_share:.1%}")
    row("steady memory, MiB", lambda r: f"{r.memory_mib:.0f}")
    table.add_section()
    for name in ROWS:
        row(f"{name}, s", spread(name))
    table.add_section()
    row("memory after the losses, MiB", lambda r: f"{r.memory_after_mib:.0f}")
    row("status over HTTP, s", lambda r: f"{r.status_seconds:.3f}")
    row("journal, events", lambda r: str(r.events))
    row("journal, MiB", lambda r: f"{r.journal_mib:.1f}")
    row("time until a restarted orchestrator is ready, s", lambda r: f"{r.replay_seconds:.2f}")
    row("until all agents are back, s", lambda r: f"{r.back_seconds:.2f}")
    row("last command after that, s", lambda r: f"{r.after_restart.seconds['last command']:.3f}" if r.after_restart else "-")
    console.print(table)
    console.print("Losses: median (lowest to highest). " + "; ".join(f"{name}: {text}" for name, text in ROWS.items()), highlight=False)
    return table


def record(results: list[Result], args: argparse.Namespace) -> dict[str, Any]:
    entries = []
    for result in results:
        rows = {
            name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
            for name, values in result.rows().items()
            if values
        }
        entries.append({**asdict(result), "rows": rows})
    return {"machine": machine(), "arguments": vars(args), "results": entries}
