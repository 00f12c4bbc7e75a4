"""A module that counts as a script's: what a look finds in it."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

counter = 0
history: list[float] = []
settings = argparse.Namespace(noise=0.5)
ticks = itertools.count()
lock = threading.Lock()
bank = torch.zeros(4)


class Mode(Enum):
    WARM_UP = 1
    MAIN = 2


@dataclass
class Progress:
    best: float = float("inf")
    seen: dict[str, int] = field(default_factory=dict)


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self) -> None:
        self.count = 0


def level() -> int:
    return int(os.environ.get("LEVEL", "0")) + int(os.environ.get("small_level", "0"))  # noqa: SIM112


def turn() -> float:
    return math.tau


def remembers(value: float, seen: list[float] = []) -> float:  # noqa: B006
    seen.append(value)
    return sum(seen)


class Trainer:
    patience = 3  # of the class

    def __init__(self) -> None:
        self._hidden = 0
        self.progress = Progress()
        self.meters = {"top1": Slotted(), "top5": Slotted()}
        self.me = self
        self.mode = Mode.WARM_UP
        self.asked = 0

    @property
    def costly(self) -> int:
        self.asked += 1
        raise AssertionError("no one may ask")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("no one may ask")


trainer = Trainer()
alias = trainer.progress
