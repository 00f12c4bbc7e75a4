"""Threads that write workers' output, so that neither a stuck terminal nor a slow disk ever stops the agent.

`put` never blocks. The caller limits pending data: it checks `pending` and stops reading, or drops, when it grows (see `output`). A target
that fails (disk full, terminal gone) is reported once and tried again with the next data, except a terminal whose other end is closed,
which never comes back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path


class Writer:
    """Writes data in order on one thread.

    `on_drained` is called there whenever nothing is pending, `finish` for a target that needs no more for now.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[str, bytes], None],
        on_drained: Callable[[], None],
        finish: Callable[[str], None] = lambda target: None,
    ) -> None:
        self.pending = 0  # bytes put and not yet written; read without the lock, as an estimate
        self._write = write
        self._finish = finish
        self._on_drained = on_drained
        self._items: deque[tuple[str, bytes | None]] = deque()  # None: the target is finished
        self._changed = threading.Condition()
        self._closing = False
        # A daemon: a write that never returns must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, target: str, data: bytes) -> None:
        with self._changed:
            self._items.append((target, data))
            self.pending += len(data)
            self._changed.notify()

    def finished(self, target: str) -> None:
        """Mark a target whose data is complete for now."""
        with self._changed:
            self._items.append((target, None))
            self._changed.notify()

    def close(self, patience: float) -> bool:
        """Write the rest, for at most `patience` seconds. Return False if some of it was not written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._items and not self._closing:
                    self._changed.wait()
                if not self._items:
                    return
                # Adjacent items for the same target are written at once: many short lines are the usual case.
                target, data = self._items.popleft()
                parts: list[bytes] = []
                size = 0
                while data is not None:
                    parts.append(data)
                    size += len(data)
                    if not self._items or self._items[0][0] != target or self._items[0][1] is None or size >= 1 << 16:
                        break
                    data = self._items.popleft()[1]
            block = b"".join(parts)
            if data is None:
                self._finish(target)
            else:
                self._write(target, block)
            with self._changed:
                self.pending -= len(block)
                drained = not self._items
            if drained:
                self._on_drained()


class Terminal:
    """The agent's stdout and stderr, which may be a terminal, a file or a pipe."""

    def __init__(self) -> None:
        self._gone: set[int] = set()

    def write(self, target: str, data: bytes) -> None:
        fd = 1 if target == "stdout" else 2
        view = memoryview(data)
        while view and fd not in self._gone:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:  # another process on the same terminal has made it non-blocking
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    return
                self._gone.add(fd)  # `| head` has ended, the terminal was closed: training goes on, and the files have all output


class LogFiles:
    """Files by path: opened at first use, appended to, and closed when they are finished.

    An agent may have thousands of workers, one after another. A closed file that gets more data is opened again.
    """

    def __init__(self, on_failure: Callable[[str, OSError], None]) -> None:
        self._on_failure = on_failure
        self._files: dict[str, int] = {}
        self._failed: set[str] = set()

    def write(self, target: str, data: bytes) -> None:
        try:
            fd = self._files.get(target)
            if fd is None:
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                fd = self._files[target] = os.open(target, flags, 0o644)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        except OSError as error:
            if target not in self._failed:
                self._failed.add(target)
                self._on_failure(target, error)

    def finish(self, target: str) -> None:
        fd = self._files.pop(target, None)
        if fd is not None:
            with contextlib.suppress(OSError):  # a network file system may report a failed write only now
                os.close(fd)
