"""Split a stream into lines: pieces go in, complete lines come out. Every stream between two of our processes is one JSON object a line.

A line that is longer than the limit is skipped, and reported once, so that an endless line does not fill the reader's memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from understudy.links.messages import LIMIT


class LineReader:
    """The incomplete last line of one stream."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False  # inside a line that is too long

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the lines that `data` completes, without line ends and empty lines; None for one that is too long."""
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
