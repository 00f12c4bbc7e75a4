"""A sender, and a receiver that is played by the test: it refuses, closes connections, and breaks the protocol."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.netpath.builds import SOURCES, Build
from tests.netpath.test_protocol import GRANT, HANDLE, HELLO, REPLY, WELCOME
from tests.netpath.transfer import LONG

SECRET, ANSWER = bytes(range(16)), 7
FAILED = 4  # exit code of the driver

pytestmark = pytest.mark.whole


@dataclass
class Sender:
    process: subprocess.Popen[bytes]
    port: socket.socket

    def greeted(self) -> socket.socket:
        """The next connection, after its Hello."""
        link, _ = self.port.accept()
        link.settimeout(LONG)
        hello = link.recv(struct.calcsize(HELLO), socket.MSG_WAITALL)
        assert hello[16:32] == SECRET
        return link

    def is_running_after(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is None


def reply(kind: bytes, first: int, second: int = 0) -> bytes:
    return struct.pack(REPLY, kind, 0, first, second)


@contextlib.contextmanager
def sending(build: Build, **settings: str) -> Iterator[Sender]:
    """A driver that connects, over loopback with one stream, to a port on which no process listens yet."""
    found = re.search(r"kMagic = (0x\w+);", (SOURCES / "wire.h").read_text())
    assert found is not None
    environment = {**os.environ, "UNDERSTUDY_NET_IFNAME": "lo", "UNDERSTUDY_NET_SOCKETS": "1", **settings}
    with socket.socket() as port, contextlib.ExitStack() as stack:
        port.bind(("127.0.0.1", 0))
        port.settimeout(LONG)
        handle = struct.pack(HANDLE, int(found[1], 16), port.getsockname()[1], 4, 1, 1, SECRET, ANSWER) + bytes([127, 0, 0, 1])
        words = [str(build.driver), str(build.library), "send", "12", "1", "1000", str(LONG), handle.ljust(128, b"\0").hex()]
        process = stack.enter_context(subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        stack.callback(process.kill)
        yield Sender(process, port)


def test_a_receiver_that_does_not_listen_yet_has_time(plugin: Build) -> None:
    with sending(plugin) as sender:
        assert sender.is_running_after(1)  # of the 5 s, which are enough for many attempts
        sender.port.listen()
        with sender.greeted() as link:
            link.sendall(reply(WELCOME, ANSWER) + reply(GRANT, 0, 1000))
            assert link.recv(4) == b"data"


@pytest.mark.parametrize("answer", [b"", reply(WELCOME, ANSWER)], ids=["at once", "after the welcome"])
def test_a_receiver_that_closes_connections_is_not_flooded(plugin: Build, answer: bytes) -> None:
    """One that closes at once has failed after as long as one that refuses, here 3 s; and one that never gets further, too."""
    with sending(plugin, UNDERSTUDY_NET_GIVE_UP_S="3") as sender:
        sender.port.listen()
        sender.port.settimeout(0.1)
        began, connections = time.monotonic(), 0
        while sender.process.poll() is None:
            with contextlib.suppress(TimeoutError), sender.greeted() as link:
                connections += 1
                link.sendall(answer)
        assert sender.process.wait() == FAILED
        assert connections <= 2 + (time.monotonic() - began) / 0.25


def test_a_grant_far_ahead_breaks_the_protocol(plugin: Build) -> None:
    with sending(plugin) as sender:
        sender.port.listen()
        with sender.greeted() as link:
            link.sendall(reply(WELCOME, ANSWER) + reply(GRANT, 1 << 40, 1000))
            with contextlib.suppress(ConnectionResetError):
                assert link.recv(1) == b""
        with sender.greeted() as link:
            link.sendall(reply(WELCOME, ANSWER))
            assert link.recv(4) == b"prob"  # a stream that is opened again proves itself first
