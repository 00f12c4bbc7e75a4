"""Generate a stream of bytes that looks random and that both sides can repeat, block by block, from a seed.

SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014) of the word's number: any block can be generated without those before it.
"""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 20  # bytes
_WORDS = BLOCK // 8
_GAMMA = 0x9E3779B97F4A7C15


def block(seed: int, number: int) -> memoryview:
    """Return block `number` of the stream. `seed` is below 2**64. The words are little-endian on every machine."""
    z = np.arange(1, _WORDS + 1, dtype=np.uint64)
    z *= np.uint64(_GAMMA)
    z += np.uint64((seed + number * _WORDS * _GAMMA) % (1 << 64))
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z.astype("<u8", copy=False).data.cast("B")
