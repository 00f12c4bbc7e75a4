"""The output of a job: a growing file, and readers that may start at any time and follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from understudy.messages import service_jobs

BLOCK = 1 << 16
FILE = "output.log"


class Output:
    """The writer. It appends from the event loop's thread. `failed` is called once when the disk rejects a write."""

    def __init__(self, path: Path, failed: Callable[[str], None]) -> None:
        self.path = path
        self._failed = failed
        self._reported = False
        self._grown = asyncio.Event()
        self._over = False

    def write(self, text: str) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(text.encode(errors="backslashreplace"))
        except OSError as error:
            if not self._reported:
                self._reported = True
                self._failed(service_jobs.OUTPUT_UNWRITTEN(path=self.path, reason=error.strerror))
            return
        self._wake()

    def close(self) -> None:
        """Close the output: nothing more will be written."""
        self._over = True
        self._wake()

    async def read(self, offset: int, follow: bool) -> AsyncIterator[bytes]:
        """Yield the output from byte `offset` on; with `follow` until the job has ended."""
        while True:
            grown, over = self._grown, self._over
            while data := _block(self.path, offset):
                offset += len(data)
                yield data
            if over or not follow:
                return
            await grown.wait()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


def _block(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(BLOCK)
    except FileNotFoundError:
        return b""
