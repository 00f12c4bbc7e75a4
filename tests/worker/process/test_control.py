"""The worker's line to its agent."""

from __future__ import annotations

import fcntl
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from understudy.core import commands
from understudy.core.events import Quiesced
from understudy.core.model import Position, VotePhase
from understudy.links.lifeline import Lifeline
from understudy.links.messages import decode, encode
from understudy.links.page import PageWriter
from understudy.worker.process.control import Control

HIGH = 1500  # a number of a file that `select` refuses


class Ended(Exception):
    """The agent has closed the line."""


class Brief(Control):
    """Its thread ends with the connection: no other agent is started here."""

    def _listen(self) -> None:
        with suppress(Ended):
            super()._listen()

    def _reattach(self) -> None:
        raise Ended


@pytest.fixture
def high() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A pair, of which the first has a high number, as where a script has many files open when its agent is started again."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2 * HIGH), before[1]))
    low, theirs = socket.socketpair()
    ours = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH))
    low.close()
    yield ours, theirs
    theirs.close()
    ours.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_it_hears_its_agent_however_many_files_are_open(high: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    ours, theirs = high
    assert ours.fileno() >= HIGH
    control = Brief(ours, "w0", PageWriter(tmp_path / "w0.page"), Lifeline(None), (-1, -1), tmp_path)
    control.start()
    theirs.sendall(encode(commands.Release("w0", 3)).encode() + b"\n")
    assert control.wait_for(lambda: control.released is not None, 60.0)
    theirs.close()
    control._thread.join(60.0)
    assert not control._thread.is_alive()


@pytest.mark.parametrize("newcomer", [False, True])
def test_before_it_has_joined_a_first_worker_answers_and_a_newcomer_is_not_waited_for(tmp_path: Path, newcomer: bool) -> None:
    ours, theirs = socket.socketpair()
    control = Brief(ours, "w0", PageWriter(tmp_path / "w0.page"), Lifeline(None), (-1, -1), tmp_path)
    control.start()
    assign = commands.Assign("w0", 1, 0, newcomer, False, "n0:7000", {"RANK": "0", "LOCAL_RANK": "0"})
    for command in (assign, commands.Abort("w0", 2, "n0:7000", (), "a rank was lost"), commands.Release("w0", 0)):
        theirs.sendall(encode(command).encode() + b"\n")
    assert control.wait_for(lambda: control.released is not None, 60.0)
    theirs.shutdown(socket.SHUT_WR)
    control._thread.join(60.0)
    ours.shutdown(socket.SHUT_WR)
    said = b"".join(iter(lambda: theirs.recv(1 << 16), b"")).decode().splitlines()
    answers = [decode(line) for line in said if "Quiesced" in line]
    assert answers == ([] if newcomer else [Quiesced("w0", 2, Position(-1, VotePhase.RUNNING), (), 0)])
    theirs.close()
    ours.close()
