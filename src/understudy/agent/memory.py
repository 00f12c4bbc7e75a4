"""Is there room for one more spare? Counted in the host's memory and in the control group's limit, whichever is
tighter.

A spare waits with the footprint of a warm worker. It grows to that of a rank only when it takes one over, and then in
the room that the lost worker leaves; so the warm footprint and a reserve are what must be free. On a GPU the same
holds for device memory, which a warm worker does not touch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

FIRST_GUESS = 512 << 20  # a warm worker's footprint, before one has been measured
RESERVE = 256 << 20


@dataclass(frozen=True)
class Room:
    available: int
    total: int
    limited_by: str


def room(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Room:
    """What this process and its children may still use, in bytes."""
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


def refusal(footprint: int | None, now: Room) -> str | None:
    """Why a spare should not be started, or None. `footprint`: the largest of the warm workers measured so far."""
    needed = max(FIRST_GUESS, footprint or 0)
    if now.available >= needed + RESERVE:
        return None
    return (
        f"no room for a spare: it needs {_gib(needed)} and {_gib(RESERVE)} of reserve; "
        f"{_gib(now.available)} of {_gib(now.total)} are free ({now.limited_by})"
    )


def footprint(pid: int) -> int | None:
    """What a process shares with no other, in bytes; None if it is gone."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.Error:
        return None


def _groups(root: Path, own: Path) -> list[Path]:
    """The folders of this process's control group and those above it (each may set a limit), for cgroup v2 and v1."""
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


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"
