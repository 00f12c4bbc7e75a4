"""`--write` of the benchmarks: the table that a run prints goes into `docs/evidence/benchmarks.json` and its page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.evidence.record import record as record
from scripts.evidence.store import load


def add_option(parser: argparse.ArgumentParser, key: str) -> None:
    """`key`: of the entry that the benchmark replaces if no other one is given."""
    about = f"put the table into this entry of docs/evidence/benchmarks.json, and write its page ({key})"
    parser.add_argument("--write", nargs="?", const=key, default="", metavar="KEY", help=about)


def write_table(key: str, table: Table | str) -> None:
    """`table`: of rich, or Markdown."""
    write_rows(key, *cells(table))


def write_rows(key: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if key not in load("benchmarks"):
        raise SystemExit(
            f"docs/evidence/benchmarks.json has no entry {key!r}: add it, and its place in scripts/evidence/pages/benchmarks.md"
        )
    record("benchmarks", key, rows, columns)


def cells(table: Table | str) -> tuple[list[str], list[list[str]]]:
    """Return the columns' names and the rows of a table, all as text."""
    if isinstance(table, Table):
        found = [[str(cell) for cell in column.cells] for column in table.columns]
        return [str(column.header) for column in table.columns], [list(row) for row in zip(*found, strict=True)]
    head, _, *lines = [line for line in table.splitlines() if line.startswith("|")]
    return split(head), [split(line) for line in lines]


def split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
