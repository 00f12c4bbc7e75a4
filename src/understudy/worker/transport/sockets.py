"""The TCP sockets that a constructor opens, noted so that another thread can break them later.

Gloo's own `abort` does nothing, and a blocked call can only be woken by shutting its connections. The sockets are found as
the difference of /proc/self/fd around the constructor; a socket is shut only while its descriptor still names the same
inode, and only if it is connected (shutting a listener would abort the process). A socket that another thread opens during
the constructor is noted too, unless it is a store's client, which is known by its peer's address (`STORES`).
"""

from __future__ import annotations

import ctypes
import os
import platform
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_EPOLL_CTL_MOD = 3
_EVERYTHING = ctypes.c_size_t(1 << 30)  # bytes; a connection has fewer
_libc = ctypes.CDLL(None)

STORES: set[tuple[str, int]] = set()  # addresses of the stores that this process has connected to


def _open_sockets() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found[int(name)] = target
    return found


class Connections:
    """A set of sockets of this process.

    `ignore_port`: connections of this local port are not part of the set (they belong to the store that this process serves). `only`:
    the set has only connections to these addresses; without it, none to a store.
    """

    def __init__(self, ignore_port: int | None = None, only: set[tuple[str, int]] | None = None) -> None:
        self._sockets: dict[int, str] = {}
        self._ignore_port = ignore_port
        self._only = only
        self._watched: dict[int, int] = {}
        self._poll = select.poll()

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Add the sockets that the body opens."""
        before = _open_sockets()
        try:
            yield
        finally:
            for fd, inode in _open_sockets().items():
                if before.get(fd) != inode:
                    self._sockets[fd] = inode

    def _connected(self) -> Iterator[socket.socket]:
        for fd, name in list(self._sockets.items()):
            duplicate = _duplicate(fd, _inode(name))
            if duplicate is None:
                continue  # closed meanwhile
            with duplicate:
                try:
                    if duplicate.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    peer = _plain(duplicate.getpeername())
                    if peer not in self._only if self._only else peer in STORES:
                        continue
                    if self._ignore_port is not None and duplicate.getsockname()[1] == self._ignore_port:
                        continue
                except OSError:
                    continue  # not connected: a listener, or already down
                yield duplicate

    def watch(self) -> None:
        """Make `broken` watch those that are connected at this moment."""
        self._watched = {}
        self._poll = select.poll()
        for connection in self._connected():
            inode = os.fstat(connection.fileno()).st_ino
            fd = next(fd for fd, name in self._sockets.items() if name == f"socket:[{inode}]")
            self._watched[fd] = inode
            self._poll.register(fd, select.POLLRDHUP)

    def broken(self) -> bool:
        """Return whether one of the watched connections is closed or shut, on either side. Takes a few system calls."""
        if any(_is_closed(fd, inode) for fd, inode in self._watched.items()):
            return True
        return bool(self._watched) and bool(self._poll.poll(0))

    def closed(self) -> bool:
        """Return whether none of the watched connections is open in this process any more."""
        return all(_is_closed(fd, inode) for fd, inode in self._watched.items())

    def discard(self) -> None:
        """Discard, after `shut`, what has arrived on the connections: no thread reads it any more, and they take no time.

        Data that waits in a connection is thrown away in one piece, so that Gloo's thread finds its end next, and closes it. It never
        closes a connection whose half-read message has lost its receiver, and would be woken for it without end: it is therefore
        notified of each one once more and not again.
        """
        left = {fd: inode for fd, inode in self._watched.items() if not _is_closed(fd, inode)}
        epolls = _epolls() if left else []
        for fd, inode in left.items():
            connection = _duplicate(fd, inode)
            if connection is not None:
                with connection:
                    _shut(connection)  # a byte that came later would be read from the middle of a message
                    _libc.recv(connection.fileno(), None, _EVERYTHING, socket.MSG_TRUNC | socket.MSG_DONTWAIT)
                    _wake_once(fd, inode, epolls)

    def shut(self) -> None:
        """Break every connection: a thread that waits on one wakes with an error, on both sides."""
        for connection in self._connected():
            _shut(connection)


def _inode(name: str) -> int:
    """Return the inode of `socket:[INODE]`."""
    return int(name[len("socket:[") : -1])


def _is_closed(fd: int, inode: int) -> bool:
    try:
        return os.fstat(fd).st_ino != inode
    except OSError:
        return True


def _duplicate(fd: int, inode: int) -> socket.socket | None:
    """Return our own descriptor for the socket of `fd`; None if that is another one by now."""
    try:
        own = os.dup(fd)
    except OSError:
        return None
    if os.fstat(own).st_ino != inode:
        os.close(own)
        return None
    return socket.socket(fileno=own)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # the peer was faster
        connection.shutdown(socket.SHUT_RDWR)


def _epolls() -> list[int]:
    """Return the epoll descriptors of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                found.append(int(name))
    return found


def _wake_once(fd: int, inode: int, epolls: list[int]) -> None:
    """Make epolls that watch `fd` report once that there is something to read, and then only later changes."""
    for epoll in epolls:
        with suppress(OSError), open(f"/proc/self/fdinfo/{epoll}") as info:
            for line in info:  # tfd: FD events: HEX data: HEX pos:N ino:HEX sdev:HEX
                fields = line.split()
                if fields[:2] == ["tfd:", str(fd)] and f"ino:{inode:x}" in fields:
                    event = _EpollEvent(select.EPOLLIN | select.EPOLLET, int(fields[5], 16))
                    _libc.epoll_ctl(epoll, _EPOLL_CTL_MOD, fd, ctypes.byref(event))  # fails if Gloo has closed it meanwhile


class _EpollEvent(ctypes.Structure):
    """An event as in epoll_event(3type)."""

    _pack_ = 1 if platform.machine() == "x86_64" else 0
    _fields_ = (("events", ctypes.c_uint32), ("data", ctypes.c_uint64))


def _plain(address: tuple[Any, ...]) -> tuple[str, int]:
    """Return host and port; an IPv4 address in IPv6's form as IPv4."""
    return str(address[0]).removeprefix("::ffff:"), int(address[1])
