"""Write a share of the free memory with a pattern that depends on the address, and with its complement, and read it back.

Each 64-bit word gets its own number times an odd constant, so a write to a wrong address is found, and every bit is tested both ways.
All of it is written before any of it is read, so that data is read from memory and not from a cache.

The check never exhausts the node's memory: before each block is allocated, the free memory is read (`common.room`: the host and the limit
of the control group), `RESERVE` is left, and if the kernel must kill a process nevertheless, it ends this one first (`isolation`).

Known limits: the kernel chooses which memory it gives, so the rest of it is not tested; an error that the hardware corrects is not seen
here (the kernel's log reports it); one that it finds and cannot correct ends the process with SIGBUS, which is a failure, too.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from understudy.checks.base import Check, Figure, Result
from understudy.checks.options import MIB, Options
from understudy.common.room import room
from understudy.messages import node_checks

BLOCK = 64 * MIB
RESERVE = 512 * MIB  # always left to others
SLOWEST = 100e6  # bytes a second at which a pattern must be written and read
MULTIPLIER = 0x9E3779B97F4A7C15  # odd
_WORDS = 1 << 15  # at a time: fits in a cache

Numbers = NDArray[np.uint64]
_OFFSETS: Numbers = np.arange(_WORDS, dtype=np.uint64) * np.uint64(MULTIPLIER)


def _pattern(first: int, complement: bool, out: Numbers) -> None:
    """Fill `out` with the pattern of the words from number `first` on; at most `_WORDS`."""
    np.add(_OFFSETS[: out.size], np.uint64(first * MULTIPLIER % (1 << 64)), out=out)
    if complement:
        np.invert(out, out=out)


def write(block: Numbers, first: int, complement: bool) -> None:
    """Write a block's pattern. `first`: the number of the block's first word among all tested words."""
    for start in range(0, block.size, _WORDS):
        _pattern(first + start, complement, block[start : start + _WORDS])


def wrong_bits(block: Numbers, first: int, complement: bool) -> tuple[int, int]:
    """Return how many words differ from what was written, and which of their bits, combined."""
    wanted: Numbers = np.empty(_WORDS, np.uint64)
    words = bits = 0
    for start in range(0, block.size, _WORDS):
        found = block[start : start + _WORDS]
        _pattern(first + start, complement, wanted[: found.size])
        if not np.array_equal(found, wanted[: found.size]):
            different = found ^ wanted[: found.size]
            words += int(np.count_nonzero(different))
            bits |= int(np.bitwise_or.reduce(different))
    return words, bits


class Memory(Check):
    name = "memory"

    def __init__(self, options: Options, token: str = "") -> None:
        super().__init__(options, token)
        self.limit = 60.0 + 4 * options.memory_most * MIB / SLOWEST

    def missing(self) -> str:
        if self._size() >= BLOCK:
            return ""
        return node_checks.TOO_LITTLE_MEMORY(least=BLOCK // MIB, free=room().available // MIB)

    def _size(self) -> int:
        free = room().available
        return min(int(free * self.options.memory_share), free - RESERVE, self.options.memory_most * MIB)

    def run(self) -> Result:
        wanted, blocks, notes = self._size() // BLOCK, list[Numbers](), list[str]()
        written, read = list[float](), list[float]()  # seconds, for each pattern
        failures = list[str]()
        for complement in (False, True):
            began = time.monotonic()
            for number in range(wanted):
                if number == len(blocks):
                    if room().available < RESERVE + BLOCK:
                        notes.append(node_checks.MEMORY_SCARCE(done=number, wanted=wanted, size=BLOCK // MIB))
                        wanted = number
                        break
                    blocks.append(np.empty(BLOCK // 8, np.uint64))
                write(blocks[number], number * BLOCK // 8, complement)
            written.append(time.monotonic() - began)
            began = time.monotonic()
            failures += self._read(blocks, complement)
            read.append(time.monotonic() - began)
        size = len(blocks) * BLOCK
        if not size:
            failures.append(node_checks.NO_MEMORY_TRIED())
        figures = [
            Figure(name="size", value=size / MIB, unit="MiB"),
            Figure(name="written", value=size / max(min(written), 1e-9) / 1e9, unit="GB/s"),
            Figure(name="read", value=size / max(min(read), 1e-9) / 1e9, unit="GB/s"),
        ]
        return self.judged(failures, node_checks.MEMORY_HOLDS(size=size // MIB), figures, notes)

    def _read(self, blocks: list[Numbers], complement: bool) -> list[str]:
        pattern = "the complement" if complement else "the pattern"
        failures = list[str]()
        for number, block in enumerate(blocks):
            words, bits = wrong_bits(block, number * BLOCK // 8, complement)
            if words:
                failures.append(node_checks.MEMORY_WRONG(words=words, block=number, blocks=len(blocks), pattern=pattern, bits=bits))
        return failures
