"""How workers and an agent that was started again find each other.

An agent listens on a socket file beside the pages of its workers. A worker whose agent is gone trains on, and looks for the next one
there: it introduces itself, and hands over the ends of its stdout and stderr that are read. It holds them for this moment, and because a
pipe that nobody can read would fail the script's next `print`. Who stays without an agent for `AWAY` seconds ends itself: the job has
gone on without it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

FILE = "agent.sock"
AWAY = 15.0
RETRY = 0.05  # seconds between two attempts of a worker
ANSWER = 5.0  # seconds that an agent may take to answer one
_WELCOME = b"\n"


@dataclass(frozen=True)
class Introduction:
    """What a worker says first to an agent that does not know it."""

    worker: str
    rank: int  # -1: none
    generation: int  # the newest that it has heard of
    environment: dict[str, str]  # that came with the rank
    leaving: bool  # it was released

    def encode(self) -> bytes:
        return _ADAPTER.dump_json(self) + b"\n"

    @staticmethod
    def decode(line: bytes) -> Introduction:
        """Raises `ValueError`."""
        return _ADAPTER.validate_json(line)


_ADAPTER = TypeAdapter(Introduction)


def listen(folder: Path) -> socket.socket:
    """The agent's end, which only this user can reach. Raises `OSError`."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        with _reachable(folder) as path:
            (folder / FILE).unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                sock.bind(path)
            finally:
                os.umask(before)
        sock.listen(1024)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def meet(folder: Path, introduction: Introduction, outputs: tuple[int, int]) -> socket.socket:
    """A worker's new link. `outputs`: descriptors, which stay open here. Raises `OSError` if there is no agent, or it wants none of us."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        with _reachable(folder) as path:
            sock.connect(path)
        sock.settimeout(ANSWER)
        data = introduction.encode()
        sent = socket.send_fds(sock, [data], list(outputs))
        sock.sendall(data[sent:])
        if sock.recv(1) != _WELCOME:
            raise ConnectionRefusedError("the agent does not want this worker")
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def listener(folder: Path) -> int:
    """Return the process id of the agent that listens in `folder`; 0: it is outside of this process namespace.

    A worker's parent would not do: a worker that outlived its agent is not a child of the one that took it up. Raises `OSError` if no
    agent listens.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        with _reachable(folder) as path:
            sock.connect(path)
        pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid


def welcome(sock: socket.socket) -> None:
    """The agent takes a worker up: from here on `sock` is its link."""
    sock.send(_WELCOME)


@contextlib.contextmanager
def _reachable(folder: Path) -> Iterator[str]:
    """A short path to the socket file: that of a socket may have 107 bytes (unix(7)), and run directories lie anywhere."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{FILE}"
    finally:
        os.close(fd)
