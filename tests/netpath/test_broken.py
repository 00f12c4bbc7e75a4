"""Builds that are wrong on purpose: what the other tests promise to notice, they notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.netpath.builds import FAST, Build
from tests.netpath.hosts import RECEIVER, SENDER, Hosts
from tests.netpath.test_failover import MIXED
from tests.netpath.test_protocol import receiving, taken_over
from tests.netpath.transfer import transfer

Make = Callable[[int], Hosts]
WRONG_BYTES, NO_PROGRESS = 3, 5  # exit codes of the driver

pytestmark = pytest.mark.whole


def test_late_duplicates_that_are_written(builder: Callable[..., Build], hosts: Make, tmp_path: Path) -> None:
    """Acknowledgements of a rail are lost: all that it has delivered is sent again, when the receiver has checked it already."""
    two = hosts(2)
    with transfer(builder("dedupe", *FAST, "-DUNDERSTUDY_BREAK_DEDUPE"), two, tmp_path, MIXED) as running:
        running.wait_for_messages(30)
        two.drop(SENDER, 0)
        assert running.receiver_code() == WRONG_BYTES


def test_chunks_that_are_not_sent_again(builder: Callable[..., Build], hosts: Make, tmp_path: Path) -> None:
    two = hosts(2)
    with transfer(builder("retransmit", *FAST, "-DUNDERSTUDY_BREAK_RETRANSMIT"), two, tmp_path, MIXED, limit=15) as running:
        running.wait_for_messages(30)
        two.drop(RECEIVER, 0)
        assert NO_PROGRESS in running.codes()


def test_a_copy_that_is_acknowledged_before_its_successor_is_complete(builder: Callable[..., Build]) -> None:
    with receiving(builder("takeover", *FAST, "-DUNDERSTUDY_BREAK_TAKEOVER")) as receiver:
        assert taken_over(receiver) == [1]


def test_headers_that_change_under_way(builder: Callable[..., Build], hosts: Make, tmp_path: Path) -> None:
    """Those of frames and those of replies: both sides notice it before they use anything of it, and no byte is wrong."""
    build = builder("header", *FAST, "-DUNDERSTUDY_BREAK_HEADER")
    with transfer(build, hosts(2), tmp_path, MIXED, UNDERSTUDY_NET_CRC="1") as running:
        for host in (RECEIVER, SENDER):
            running.wait_for("corrupt", 20, host=host)
        running.stop()


def test_bytes_that_change_under_way(builder: Callable[..., Build], hosts: Make, tmp_path: Path) -> None:
    build = builder("wire", *FAST, "-DUNDERSTUDY_BREAK_WIRE")
    two = hosts(2)
    with transfer(build, two, tmp_path / "unchecked", MIXED) as running:
        assert running.receiver_code() == WRONG_BYTES
    with transfer(build, two, tmp_path / "checked", MIXED, UNDERSTUDY_NET_CRC="1") as running:
        running.wait_for("corrupt", 2, host=RECEIVER)
        running.stop()
