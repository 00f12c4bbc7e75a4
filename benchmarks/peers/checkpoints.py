"""Write checkpoints to a disk that all ranks see, in two ways.

Whole: rank 0 writes one file with `torch.save`, the others go on to the next step and wait for it there. Most scripts do this.
Distributed: `torch.distributed.checkpoint.async_save` as its documentation advises: each rank writes its part in a thread, over a
separate process group, while training goes on. A checkpoint counts once its metadata are there. The next one waits for the last.
"""

from __future__ import annotations

import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from peers.training import Training


class Checkpoints(Protocol):
    def load(self) -> int:
        """Load the last checkpoint; return the number of completed steps, 0 if there is none. Called by all ranks."""

    def save(self, step: int) -> None:
        """Save a checkpoint after `step`. Called by all ranks."""

    def close(self) -> None:
        """Wait until everything is written."""


def checkpoints_of(training: Training, rank: int) -> Checkpoints:
    return Distributed(training, rank) if training.args.checkpoints == "distributed" else Whole(training, rank)


class Whole:
    def __init__(self, training: Training, rank: int) -> None:
        self.training, self.rank = training, rank
        self.path = training.args.folder / "checkpoint.pt"

    def load(self) -> int:
        if not self.path.exists():
            return 0
        state = torch.load(self.path, mmap=True, weights_only=True)
        self.training.net.load_state_dict(state["model"])
        self.training.optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def save(self, step: int) -> None:
        if self.rank == 0:
            state = {"model": self.training.net.state_dict(), "optimizer": self.training.optimizer.state_dict(), "step": step}
            partial = self.path.with_suffix(".partial")
            torch.save(state, partial)
            partial.rename(self.path)

    def close(self) -> None:
        pass


class Distributed:
    def __init__(self, training: Training, rank: int) -> None:
        self.training, self.rank, self.folder = training, rank, training.args.folder
        self.group: Any = dist.new_group(backend="gloo")  # so that its collectives do not mix with those of the training
        self.writing: Future[Any] | None = None

    def load(self) -> int:
        from torch.distributed.checkpoint.state_dict import set_state_dict
        from torch.distributed.checkpoint.state_dict_loader import load

        last: list[int] = [max(self._complete(), default=0)] if self.rank == 0 else [0]
        dist.broadcast_object_list(last)
        if last[0]:
            state = self._state()
            load(state, checkpoint_id=self._path(last[0]))
            set_state_dict(
                self.training.net,
                self.training.optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
            )
        return last[0]

    def save(self, step: int) -> None:
        from torch.distributed.checkpoint.state_dict_saver import async_save

        self.close()
        if self.rank == 0:
            for old in self._complete()[:-1]:
                shutil.rmtree(self._path(old), ignore_errors=True)
        written = async_save(self._state(), checkpoint_id=self._path(step), process_group=self.group)
        assert isinstance(written, Future)
        self.writing = written

    def close(self) -> None:
        if self.writing:
            self.writing.result()

    def _state(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.training.net, self.training.optimizer)
        return {"model": model, "optimizer": optimizer}

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def _complete(self) -> list[int]:
        return sorted(int(path.parent.name.partition("-")[2]) for path in self.folder.glob("step-*/.metadata"))
