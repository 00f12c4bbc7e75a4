"""Let workers and a restarted agent find each other.

An agent listens on a socket file in the folder of its workers' pages. A worker whose agent is gone continues to train, and looks for the
next one there: it introduces itself, and passes the reading ends of its stdout and stderr. It keeps them open for this case, and because a
pipe without a reader would make the script's next `print` fail. A worker that stays without an agent for `AWAY` seconds ends itself: the
job has gone on without it.
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
    """A worker's first message to an agent that does not know it."""

    worker: str
    rank: int  # -1: none
    generation: int  # the newest that it knows
    environment: dict[str, str]  # that came with the rank
    leaving: bool  # it was released

    def encode(self) -> bytes:
        return _ADAPTER.dump_json(self) + b"\n"

    @staticmethod
    def decode(line: bytes) -> Introduction:
        """Decode an introduction. Raises `ValueError`."""
        return _ADAPTER.validate_json(line)


_ADAPTER = TypeAdapter(Introduction)


def listen(folder: Path) -> socket.socket:
    """Create the agent's socket, which only this user can reach. Raises `OSError`."""
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
    """Connect a worker to the agent and return its new link. `outputs`: descriptors, which stay open here. Raises `OSError` if there is
    no agent, or it refuses us.
    """
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

    A worker's parent would not do: a worker that outlived its agent is not a child of the one that took it over. Raises `OSError` if no
    agent listens.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        with _reachable(folder) as path:
            sock.connect(path)
        pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid


def welcome(sock: socket.socket) -> None:
    """Accept a worker: from here on `sock` is its link."""
    sock.send(_WELCOME)


@contextlib.contextmanager
def _reachable(folder: Path) -> Iterator[str]:
    """Yield a short path to the socket file: a socket's path has at most 107 bytes (unix(7)), and run directories are anywhere."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{FILE}"
    finally:
        os.close(fd)
