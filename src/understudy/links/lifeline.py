"""A lock that the death of its owner opens: with it, an agent learns at once that a worker is ending.

A pidfd reports the end only after the kernel has freed a process's memory, which takes 0.1 s for a worker of some hundred megabytes on a
busy host, and much longer for a large one. A robust mutex (pthread_mutexattr_setrobust(3)) in memory that both have mapped is
opened by the kernel when the thread that owns it ends, before the memory is freed. The worker owns the one in its page for as long as it
lives; the agent waits for it on a thread, which costs nothing.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path

OFFSET = 2048  # bytes into the page; glibc's and musl's mutexes are 40 bytes on 64-bit machines
_SHARED = _ROBUST = 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST


class Lifeline:
    """The lock in the page at `path`; None: in memory of this process, for a worker without a page. Raises `OSError` if it cannot be
    mapped.
    """

    def __init__(self, path: Path | None) -> None:
        if path is None:
            self._map = mmap.mmap(-1, mmap.PAGESIZE)
        else:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._map = mmap.mmap(fd, 0)  # mapped for as long as this object lives
            finally:
                os.close(fd)
        self._libc = ctypes.CDLL(None)
        self._mutex = ctypes.byref(ctypes.c_char.from_buffer(self._map, OFFSET))

    def hold(self) -> None:
        """Create the lock and take it. For the worker, on a thread that lives as long as the process."""
        attributes = ctypes.create_string_buffer(64)
        self._libc.pthread_mutexattr_init(attributes)
        self._libc.pthread_mutexattr_setpshared(attributes, _SHARED)
        self._libc.pthread_mutexattr_setrobust(attributes, _ROBUST)
        self._libc.pthread_mutex_init(self._mutex, attributes)
        self._libc.pthread_mutex_lock(self._mutex)

    def wait(self) -> bool:
        """Block until the owner has ended, then return True; return False at once if there is none. For the agent."""
        return bool(self._libc.pthread_mutex_lock(self._mutex) == errno.EOWNERDEAD)
