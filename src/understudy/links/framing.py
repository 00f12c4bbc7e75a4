"""LineReader on a stream socket: pieces come in, whole lines go out. Every stream between two of our processes is one JSON object a line.

A line that is longer than the limit is skipped, and told once, so that who writes without an end does not fill the memory of who reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from understudy.links.messages import LIMIT


class LineReader:
    """What came of one stream and is no whole line yet."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False  # inside a line that is too long

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that `data` completes, without their ends and without empty ones; None for one that is too long."""
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif line:
                yield bytes(line)
        if len(self._rest) > self._limit:
            if not self._skipping:
                yield None
            self._skipping = True
            self._rest.clear()
