"""`checks.disk`: a disk that is full, away, or reads other bytes than were written to it; and the stream that is written."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.message_texts import has

from understudy.checks import stream
from understudy.checks.base import Verdict
from understudy.checks.disk import Disk
from understudy.checks.options import Options
from understudy.messages import node_checks


def check(folder: Path, **more: float) -> Disk:
    return Disk(Options(**{"folder": str(folder), "disk_size": 4, "min_free": 0.0, **more}))  # type: ignore[arg-type]


def test_a_disk_that_works(tmp_path: Path) -> None:
    found = check(tmp_path).run()
    assert (found.verdict, found.detail) == (Verdict.PASSED, node_checks.DISK_HOLDS(size=4, folder=tmp_path))
    assert [(figure.name, figure.unit) for figure in found.figures] == [("free", "GiB"), ("written", "MB/s"), ("read", "MB/s")]
    assert list(tmp_path.iterdir()) == []


def test_too_little_room(tmp_path: Path) -> None:
    found = check(tmp_path, min_free=1e8).run()
    assert found.verdict is Verdict.FAILED
    assert has(found.detail, node_checks.DISK_FULL, folder=tmp_path, wanted=1e8)


def test_no_folder(tmp_path: Path) -> None:
    found = check(tmp_path / "away").run()
    assert (found.verdict, found.detail) == (
        Verdict.FAILED,
        node_checks.DISK_FAILED(folder=tmp_path / "away", size=4, reason=os.strerror(errno.ENOENT)),
    )


def test_a_disk_that_fills_up_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    found = check(tmp_path).run()
    assert found.verdict is Verdict.FAILED
    assert found.detail == node_checks.NO_ROOM(folder=tmp_path, size=4, reason=os.strerror(errno.ENOSPC))


def test_other_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.preadv

    def spoilt(descriptor: int, buffers: Sequence[bytearray], offset: int) -> int:
        count = read(descriptor, buffers, offset)
        if offset == 2 * stream.BLOCK:
            buffers[0][70000] ^= 1
        return count

    monkeypatch.setattr(os, "preadv", spoilt)
    found = check(tmp_path).run()
    assert (found.verdict, found.detail) == (Verdict.FAILED, node_checks.DISK_WRONG(folder=tmp_path, offset=2))


def test_a_file_that_got_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "preadv", lambda descriptor, buffers, offset: 0)
    assert check(tmp_path).run().verdict is Verdict.FAILED


def test_a_file_system_without_direct_reads_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(descriptor: int, command: int, flags: int = 0) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", refused)
    found = check(tmp_path).run()
    assert found.verdict is Verdict.PASSED
    assert found.notes == (node_checks.DISK_CACHED(),)


def test_the_stream_is_splitmix64() -> None:
    """Known values: seed 1234567, as in other implementations; and block by block the same as in one go."""
    first = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert bytes(stream.block(1234567, 0)[:40]) == b"".join(number.to_bytes(8, "little") for number in first)
    words, gamma, all_bits = stream.BLOCK // 8, 0x9E3779B97F4A7C15, (1 << 64) - 1
    assert bytes(stream.block(5, 3)) == bytes(stream.block(5 + 3 * words * gamma & all_bits, 0))
    assert bytes(stream.block(5, 0)) != bytes(stream.block(6, 0))
