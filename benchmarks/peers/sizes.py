"""The models of the comparison, by the number of their parameters. Does not import torch."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int

    def parameters(self) -> int:
        """Return the number of parameters of `training.GPT`, without building it: matrices, biases and norms of the layers, the two
        tables and the last norm.
        """
        layer = 12 * self.width**2 + 13 * self.width
        return self.layers * layer + (256 + 64) * self.width + 2 * self.width


SIZES = {
    "1M": Size(5, 128, 4),
    "3M": Size(4, 256, 4),
    "10M": Size(6, 384, 6),
    "30M": Size(10, 512, 8),
    "100M": Size(14, 768, 12),
}


def choice(text: str, known: Mapping[str, object]) -> list[str]:
    """Parse a command line's list: names of `known`, separated by commas."""
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names
