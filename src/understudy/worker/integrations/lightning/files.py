"""Files that `Trainer.fit` writes in sections: an attempt that is redone, or a newcomer, must not take them for those of another run.

A `ModelCheckpoint` looks for a name that no file has, and a redo would find the file of the interrupted attempt, and append "-v1". So all
ranks note the names that an attempt has found free, before any of them writes, and a redo counts them as free. That takes one small
reduction more for each name.

A logger takes the number of the next free folder, and a newcomer of rank 0 would find the folder of its own rank. So the numbers of rank
0 are gathered when the process group is made, and a newcomer gets the recorded ones. A `CSVLogger` removes the file that it finds in
its folder; on a newcomer it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist


class FreeNames:
    """The names of checkpoints that the running section has found free."""

    def __init__(self) -> None:
        self._earlier: set[str] = set()  # in attempts that were interrupted
        self._now: set[str] = set()

    def attempt(self) -> None:
        """Note that an attempt begins."""
        self._earlier |= self._now
        self._now = set()

    def committed(self) -> None:
        """Note that the section is committed."""
        self._earlier, self._now = set(), set()

    def file_exists(self, stock: Callable[..., bool], callback: Any, filepath: Any, trainer: Any) -> bool:
        """Stand in for `ModelCheckpoint.file_exists`. All ranks call it."""
        name = str(filepath)
        exists = stock(callback, filepath, trainer)
        mine = name in self._earlier and name not in self._now
        made_by_us = exists and trainer.strategy.reduce_boolean_decision(mine, all=False)
        if exists and not made_by_us:
            return True
        self._now.add(name)
        if not exists:
            trainer.strategy.barrier("name of a checkpoint")  # rank 0 may write it only when all ranks have noted it
        return False


def share_versions(loggers: Sequence[Any], newcomer: bool) -> None:
    """Give each logger the number of its folder that rank 0 of the first workers had. All ranks call it, as the first collective."""
    numbered = [logger for logger in loggers if getattr(logger, "_version", 0) is None and hasattr(logger, "_get_next_version")]
    mine = [logger.version for logger in numbered] if dist.get_rank() == 0 and not newcomer else None
    given: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(given, mine)
    for logger, version in zip(numbered, given[0] or (), strict=True):
        logger._version = version
