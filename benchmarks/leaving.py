"""Measure the time from evidence against a node to its rank's new place, and what training pays, with and without prepared spares.

    python benchmarks/leaving.py --moves 10 --json leaving.json

A service with two node agents on this machine, and a job of two ranks (`examples/train_gpt.py`), one on each node, with a spare on each.
Evidence arrives over HTTP, as from an alert; when the rank has left, the evidence is over, and the next move goes the other way. Jobs with
and without prepared spares take turns. Times are those of the journal and of the report:

    decision   from the request to the taint: the orchestrator looks once a second
    setup      from the taint to a newcomer that is ready; training goes on
    pause      what training pays: from the pause at a step boundary to the next commit of every rank
    new place  the sum
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import evidence
from recovery import MODELS, machine  # and so `examples` is on the path
from running import SCRIPT
from service import LocalService, until

POLICY = '[limits]\nnodes_per_hour = 100000\n[trust]\ncheck = false\n[[rule]]\nname = "all"\nsubject = ["node"]\naction = "leave"\n'
ROWS = ("decision", "setup", "pause", "new place")

Figures = dict[str, list[float]]


class Measured:
    """Measure one job after the other on a service with two nodes."""

    def __init__(self, service: LocalService) -> None:
        self._service = service

    def tell(self, node: str, **more: float) -> float:
        """Report evidence against a node; return the time."""
        then = time.time()
        self._service.http.post("/v1/evidence", json=[{"node": node, "source": "bench", "kind": "hot", **more}]).raise_for_status()
        return then

    def moves(self, name: str, prepared: int, model: str, count: int) -> Figures:
        """Move the ranks of one job."""
        policy = self._service.folder / "policy.toml"
        policy.write_text(POLICY)
        words = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "2", "--prepare", str(prepared)]
        words += ["--drill", "off", "--policy", str(policy), str(SCRIPT), "--steps", "1000000", *MODELS[model]]
        self._service.submit(name, *words)
        found: Figures = {row: [] for row in ROWS}
        for _ in range(count):
            for row, value in self._move(name, "prepared" if prepared else "warm").items():
                found[row].append(value)
        self._service.http.post(f"/v1/jobs/{name}/stop", json={}).raise_for_status()
        until(lambda: self._service.get(f"jobs/{name}/status")["exit_code"] is not None, "the end of the job")
        until(lambda: all(node["free"] == 2 for node in self._service.get("nodes")), "free slots")
        return found

    def _move(self, name: str, wanted: str) -> dict[str, float]:
        """Move rank 1 to the other node. `wanted`: the state of both spares before."""

        def ready() -> bool:
            status = self._service.get(f"jobs/{name}/status")
            return bool(status["state"] == "training" and [spare["state"] for spare in status["spares"]] == [wanted] * 2)

        until(ready, f"two {wanted} spares")
        node = self._service.get(f"jobs/{name}/status")["ranks"][1]["node"]
        before = len(self._closed(name))
        told = self.tell(node)
        until(lambda: len(self._closed(name)) > before, "the move")
        incident = self._closed(name)[-1]
        tainted = max(event["time"] for event in self._service.events(name) if event["type"] == "NodeTainted" and event["reason"])
        ended = incident["fault_at"] + incident["seconds"]
        self.tell(node, until=time.time())
        until(lambda: not self._service.get(f"jobs/{name}/status")["taints"], "the end of the taint")
        values = (tainted - told, incident["fault_at"] - tainted, incident["seconds"], ended - told)
        return dict(zip(ROWS, values, strict=True))

    def _closed(self, name: str) -> list[dict[str, Any]]:
        return [incident for incident in self._service.get(f"jobs/{name}/report")["incidents"] if incident["seconds"] is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description="From evidence to a new place.")
    parser.add_argument("--moves", type=int, default=10, help="of each way, in two turns")
    parser.add_argument("--model", choices=sorted(MODELS), default="small")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "leaving")
    args = parser.parse_args()
    ways = {"warm": 0, "prepared": 2}
    found: dict[str, Figures] = {way: {row: [] for row in ROWS} for way in ways}
    with tempfile.TemporaryDirectory(prefix="understudy-leaving-") as folder, LocalService(Path(folder), "ab", slots=2) as service:
        measured = Measured(service)
        for turn in range(2):
            for way, prepared in ways.items():
                for row, values in measured.moves(f"{way}-{turn}", prepared, args.model, (args.moves + 1 - turn) // 2).items():
                    found[way][row] += values
    table = Table(f"{args.model} model, 2 ranks", *(f"{way} spares, s (min to max)" for way in ways), "prepared / warm")
    for row in ROWS:
        medians = [statistics.median(found[way][row]) for way in ways]
        cells = [f"{m:.3f} ({min(found[way][row]):.3f} to {max(found[way][row]):.3f})" for way, m in zip(ways, medians, strict=True)]
        table.add_row(row, *cells, f"{medians[1] / medians[0]:.2f}")
    Console().print(table)
    if args.write:
        evidence.write_table(args.write, table)
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(), "model": args.model, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
