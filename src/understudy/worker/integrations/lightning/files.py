"""Files that `Trainer.fit` writes in sections: an attempt that is redone, or a newcomer, must not take them for those of another run.

A `ModelCheckpoint` looks for a name that no file has, and a redo would find the file of the interrupted attempt, and append "-v1". So
rank 0 marks the names that it has found free, by an empty file next to each, until the section is committed. A redo counts names with a
mark of its own section as free, also on a newcomer.

A logger takes the number of the next free folder, and a newcomer of rank 0 would find the folder of its own rank. So the numbers of rank
0 are gathered when the process group is made, and a newcomer gets the recorded ones. A `CSVLogger` removes the file that it finds in
its folder; on a newcomer it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch.distributed as dist

from understudy.worker.integrations.attributes import PlainAttributes

_MARK = ".understudy-"


class FreeNames:
    """The names of checkpoints that the running section has found free. Rank 0 has them, on disk."""

    def __init__(self) -> None:
        self._asked: set[str] = set()  # in this attempt
        self._marks: list[tuple[Any, str]] = []  # file systems and files
        self._number = -1
        self._cleaned = False

    def attempt(self, number: int) -> None:
        """Begin an attempt of the section with this number."""
        self._asked, self._number = set(), number

    def committed(self, trainer: Any, newcomer: bool) -> None:
        """Remove the marks: the section is committed. A `newcomer` of rank 0 also removes those that its lost worker has left."""
        if newcomer and not self._cleaned and trainer.is_global_zero:
            folders = {(one._fs, f"{one.dirpath}/.*{_MARK}*") for one in trainer.callbacks if getattr(one, "dirpath", None)}
            self._marks += [(files, mark) for files, pattern in folders for mark in files.glob(pattern)]
            self._cleaned = True
        for files, mark in self._marks:
            with suppress(FileNotFoundError):
                files.rm(mark)
        self._marks = []

    def file_exists(self, callback: Any, filepath: Any, trainer: Any) -> bool:
        """Stand in for `ModelCheckpoint.file_exists`. All ranks call it."""
        name, exists = str(filepath), False
        if trainer.is_global_zero:
            folder, _, file = name.rpartition("/")
            files, mark = callback._fs, f"{folder}/.{file}{_MARK}{self._number}"
            exists = files.exists(name) and (name in self._asked or not files.exists(mark))
            if not exists:
                files.makedirs(folder, exist_ok=True)
                files.touch(mark)
                self._marks.append((files, mark))
            self._asked.add(name)
        answer: bool = trainer.strategy.reduce_boolean_decision(exists, all=False)
        return answer


def share_versions(loggers: Sequence[Any], newcomer: bool) -> None:
    """Give each logger the number of its folder that rank 0 of the first workers had. All ranks call it, as the first collective."""
    numbered = [logger for logger in loggers if getattr(logger, "_version", 0) is None and hasattr(logger, "_get_next_version")]
    mine = [logger.version for logger in numbered] if dist.get_rank() == 0 and not newcomer else None
    given: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(given, mine)
    for logger, version in zip(numbered, given[0] or (), strict=True):
        logger._version = version


class LogOfCSV:
    """The rows of a `CSVLogger` that are not written yet, and the columns of its file. Only rank 0 has them."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def state_dict(self) -> dict[str, Any]:
        writer = self._logger._experiment
        return PlainAttributes(writer).state_dict() if writer is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        writer = self._logger._experiment
        if writer is not None:
            PlainAttributes(writer).load_state_dict(state)
