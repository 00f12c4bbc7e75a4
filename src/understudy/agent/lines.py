"""Split the output of a worker into lines for a terminal that many workers share.

A line may come in pieces, be endless, contain any bytes, or be redrawn with carriage returns (progress bars). Complete lines are returned
at once. Of a line that is redrawn only the newest state is returned, and only as often as `tick` is called. A piece without a newline for a
whole tick is returned as it is (a prompt, the last output before a hang).
"""

from __future__ import annotations

import re

LONGEST = 1 << 16  # bytes; a longer line is cut into pieces of this size on the terminal, never in the log file
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")  # not tab
# Sequences of a terminal (ECMA-48, 5.4 and 5.6): CSI, OSC, other strings, and those of two characters.
_STRING = "[^\x00-\x1f\x7f-\x9f]*"
_SEQUENCE = re.compile(
    f"(\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\]{_STRING}(?:\x07|\x1b\\\\)|\x1b[PX^_]{_STRING}\x1b\\\\|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ`-~])"
)
_KEPT = re.compile(
    "\x1b\\[[0-9;:]*m|\x1b\\]8;.*", re.DOTALL
)  # colours and links; sequences that move the cursor would overwrite other ranks' lines


def printable(line: bytes) -> str:
    """Decode bytes for display: UTF-8 where it is valid, escapes such as \\x00 elsewhere.

    Sequences of a terminal are kept if they only change how text looks, or nothing.
    """
    pieces = _SEQUENCE.split(line.decode("utf-8", "backslashreplace"))
    for at, piece in enumerate(pieces):
        if at % 2 == 0:
            pieces[at] = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", piece)
        elif not _KEPT.fullmatch(piece):
            pieces[at] = ""
    return "".join(pieces)


class Lines:
    def __init__(self) -> None:
        self._part = bytearray()  # after the last newline or carriage return
        self._drawn = b""  # the text before the last carriage return, if not yet shown
        self._fresh = False  # `_part` has grown since the last tick

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes."""
        self._part += data
        self._fresh = True
        *complete, rest = self._part.split(b"\n")
        lines = [self._shown(bytes(line)) for line in complete]
        self._part = rest
        if b"\r" in rest:
            *states, last = bytes(rest).split(b"\r")
            self._drawn = next((state for state in reversed(states) if state), self._drawn)
            self._part = bytearray(last)
        while len(self._part) > LONGEST:
            lines.append(bytes(self._part[:LONGEST]))
            del self._part[:LONGEST]
        return lines

    def tick(self) -> list[bytes]:
        """Return text to be shown although its line has not ended. Call it about once a second."""
        lines = []
        if self._drawn:
            lines.append(self._drawn)
            self._drawn = b""
        elif self._part and not self._fresh:
            lines.append(bytes(self._part))
            self._part.clear()
        self._fresh = False
        return lines

    def end(self) -> list[bytes]:
        """Return the rest, when the stream has ended."""
        rest = bytes(self._part) or self._drawn
        self._part.clear()
        self._drawn = b""
        return [rest] if rest else []

    def _shown(self, line: bytes) -> bytes:
        """Return the state of a complete line after the last redraw."""
        drawn, self._drawn = self._drawn, b""
        return next((state for state in reversed(line.split(b"\r")) if state), drawn)
