"""Memory for a spare: the numbers of a refusal."""

from __future__ import annotations

import os
from pathlib import Path

from tests.message_texts import has

from understudy.agent.memory import FIRST_GUESS, RESERVE, footprint, refusal
from understudy.common.room import Room, room
from understudy.messages import agents

GIB = 1 << 30


def test_a_spare_needs_a_warm_workers_footprint_and_a_reserve() -> None:
    assert refusal(None, Room(FIRST_GUESS + RESERVE, GIB, "this host")) is None
    assert refusal(None, Room(FIRST_GUESS + RESERVE - 1, GIB, "this host")) is not None
    why = refusal(2 * GIB, Room(GIB, 4 * GIB, "this host"))
    assert has(why, agents.NO_ROOM_FOR_SPARE, needed="2.00 GiB", free="1.00 GiB", total="4.00 GiB", limited_by="this host")


def test_a_control_group_limits_more_than_the_host(tmp_path: Path) -> None:
    group = tmp_path / "job"
    group.mkdir()
    (group / "memory.max").write_text(f"{GIB}\n")
    (group / "memory.current").write_text(f"{GIB - 1000}\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 500\n")
    own = tmp_path / "own"
    own.write_text("0::/job\n")
    found = room(tmp_path, own)
    assert (found.available, found.total, found.limited_by) == (1500, GIB, "control group job")


def test_a_group_without_a_limit_is_no_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    own = tmp_path / "own"
    own.write_text("0::/\n")
    assert room(tmp_path, own).limited_by == "this host"


def test_footprint() -> None:
    own = footprint(os.getpid())
    assert own is not None
    assert own > 1 << 20
    assert footprint(2**22 + 1) is None
