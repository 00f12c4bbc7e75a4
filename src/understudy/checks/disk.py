"""Write a file in a given folder, sync it to the disk and read it back; before that, check that there is room for it, and more.

The file has no name, so nothing is left whatever happens. It is read past the system's cache where the file system supports that
(O_DIRECT); else the cache is asked to drop it (posix_fadvise), which it need not do, and the result notes that the bytes may have come from
there.

Known limits: a disk has its own cache, and a network file system its server's; data may be read from these. Only the blocks of the
disk that the file gets are tested. A disk that never answers leaves this process waiting in the kernel (`isolation`).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import tempfile
import time

import xxhash

from understudy.checks import stream
from understudy.checks.base import Check, Figure, Result
from understudy.checks.options import MIB, Options
from understudy.messages import node_checks

SLOWEST = 10e6  # bytes a second: a slower disk has failed


class Disk(Check):
    name = "disk"

    def __init__(self, options: Options, token: str = "") -> None:
        super().__init__(options, token)
        self.limit = 30.0 + 2 * options.disk_size * MIB / SLOWEST

    def run(self) -> Result:
        folder, size = self.options.folder, self.options.disk_size * MIB
        try:
            free = shutil.disk_usage(folder).free
            figures = [Figure(name="free", value=free / (1 << 30), unit="GiB")]
            failures = self._short_of_room(free, size)
            if failures:
                return self.judged(failures, "", figures)
            return self._tried(size, figures)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            message = node_checks.NO_ROOM if full else node_checks.DISK_FAILED
            return self.judged([message(folder=folder, size=size // MIB, reason=error.strerror)], "")

    def _short_of_room(self, free: int, size: int) -> list[str]:
        needed = max(size, int(self.options.min_free * (1 << 30)))
        if free >= needed:
            return []
        return [node_checks.DISK_FULL(folder=self.options.folder, free=free / (1 << 30), wanted=needed / (1 << 30))]

    def _tried(self, size: int, figures: list[Figure]) -> Result:
        """Write and read the file, and return the result. Raises `OSError`."""
        seed = int.from_bytes(os.urandom(8), "little")
        count = size // stream.BLOCK
        with tempfile.TemporaryFile(dir=self.options.folder, buffering=0) as file:
            digests = []
            written = 0.0  # seconds
            for number in range(count):
                block = stream.block(seed, number)
                digests.append(xxhash.xxh3_128_digest(block))
                began = time.monotonic()
                _write(file.fileno(), block)
                written += time.monotonic() - began
            began = time.monotonic()
            os.fsync(file.fileno())
            written += time.monotonic() - began
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            direct = _read_past_the_cache(file.fileno())
            began = time.monotonic()
            wrong = [number for number in range(count) if xxhash.xxh3_128_digest(_read(file.fileno(), number)) != digests[number]]
            read = time.monotonic() - began
        figures = [
            *figures,
            Figure(name="written", value=size / max(written, 1e-9) / 1e6, unit="MB/s"),
            Figure(name="read", value=size / max(read, 1e-9) / 1e6, unit="MB/s"),
        ]
        failures = [node_checks.DISK_WRONG(folder=self.options.folder, offset=number) for number in wrong]
        notes = [] if direct else [node_checks.DISK_CACHED()]
        return self.judged(failures, node_checks.DISK_HOLDS(size=size // MIB, folder=self.options.folder), figures, notes)


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read_past_the_cache(descriptor: int) -> bool:
    """Make reads bypass the cache; return whether they do."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True


def _read(descriptor: int, number: int) -> bytes:
    """Read block `number`, or as much of it as there is."""
    with mmap.mmap(-1, stream.BLOCK) as aligned:  # aligned, as O_DIRECT needs it
        count = os.preadv(descriptor, [aligned], number * stream.BLOCK)
        return aligned[:count]
