"""Packages that a test makes up: a module and what the importer must find to take it for installed, entry points included."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent


def install(folder: Path, name: str, group: str, target: str, source: str) -> None:
    """Into `folder`, for a process with that path: the module `name` and a distribution of that name with one entry point of `group`."""
    (folder / f"{name}.py").write_text(dedent(source))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
