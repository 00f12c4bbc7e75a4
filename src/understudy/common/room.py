"""Measure how much memory may still be used here: the tighter of the host's memory and the control group's limit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Room:
    available: int
    total: int
    limited_by: str


def room(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Room:
    """Return the memory that this process and its children may still use, in bytes."""
    host = psutil.virtual_memory()
    best = Room(host.available, host.total, "this host")
    for folder in _groups(root, own):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        if limit is None or used is None or limit >= host.total:
            continue
        free = limit - used + _reclaimable(folder / "memory.stat")
        if free < best.available:
            best = Room(max(0, free), limit, f"control group {folder.name or '/'}")
    return best


def _groups(root: Path, own: Path) -> list[Path]:
    """Return the folders of this process's control group and those above it (each may set a limit), for cgroup v2 and v1."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = root / "memory" if controllers else root
        folder = base / path.lstrip("/")
        folders += [f for f in (folder, *folder.parents) if f == base or base in f.parents]
    return folders


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _reclaimable(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(" ", 1) for line in lines if " " in line)
    return int(fields.get("inactive_file", 0))
