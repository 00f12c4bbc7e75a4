"""The epochs of a Hugging Face `Trainer`: each is a loop that the adapter leads, with the batches of one update as an iteration.

A newcomer skips the epochs that are over. It enters the epoch of the job as if its training was resumed from a checkpoint there: the
trainer then counts from the update that follows, and its own way to skip batches is left out, because the job's loop goes there itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from understudy.messages import integrations
from understudy.worker.data.led_loops import LedLoop
from understudy.worker.errors import UsageError
from understudy.worker.integrations.base import JobOfTrainer
from understudy.worker.integrations.trainer_data import EpochData
from understudy.worker.state.streams import Randomness

RESUMED = "of a running job"  # stands for a checkpoint


class Epochs:
    """The epochs of one training."""

    def __init__(self, trainer: Any, job: JobOfTrainer, randomness: Randomness, skip: Callable[[], None]) -> None:
        """`skip`: skips the section at the end of an epoch, on a newcomer."""
        self._trainer, self._job, self._randomness, self._skip = trainer, job, randomness, skip
        self.begun = 0  # epochs of this training, also those that a newcomer has skipped
        self._data: EpochData | None = None  # of the epoch that runs
        self._loop: LedLoop | None = None
        self._enters = False  # a newcomer enters in the middle of this epoch

    def run(self, stock: Callable[..., None], **given: Any) -> None:
        """Stand in for `Trainer._run_epoch`. Raises `UsageError` after a loop of the job's own."""
        epoch, accumulated, batches = given["epoch"], self._trainer.args.gradient_accumulation_steps, given["steps_in_epoch"]
        resumed = epoch == given["epochs_trained"] and given["resume_from_checkpoint"] is not None
        before = 0 if not resumed or self._trainer.args.ignore_data_skip else given["steps_trained_in_current_epoch"]
        loader = given["train_dataloader"]
        data = self._data = EpochData(_without(loader, before) if before else loader, self._randomness, accumulated, batches - before)
        number, self.begun = self.begun, self.begun + 1
        where = self._job.where()
        if not self._job.newcomer and where.loop != number:
            raise UsageError(integrations.TRAINED_AFTER_A_LOOP())
        done = before
        if number < where.loop:  # a newcomer, and the loop of this epoch is over
            self._pass_loop(data)
            if number < where.loop - 1 or where.iteration >= 0:
                self._skip()
                return
            done = batches
        elif number == where.loop and self._job.newcomer:
            done += max(where.iteration, 0) * accumulated
        self._enters = done > before
        if self._enters:
            given.update(epochs_trained=epoch, steps_trained_in_current_epoch=done, resume_from_checkpoint=RESUMED)
        try:
            stock(**{**given, "train_dataloader": data})
        finally:
            self._enters = False

    def _pass_loop(self, data: EpochData) -> None:
        loop = self._job.lead(data.position, data.go_to)
        with suppress(StopIteration):
            loop.draw(data.take)
        loop.end()

    def leads(self, iterator: Any) -> bool:
        """Return whether this is the iterator of the running epoch."""
        return self._data is not None and iterator is self._data

    def draw(self) -> list[Any]:
        """Return the batches of the next update; empty if there is none."""
        assert self._data is not None
        if self._loop is None:
            self._loop = self._job.lead(self._data.position, self._data.go_to)
        try:
            return self._loop.draw(self._data.take)
        except StopIteration:
            return []

    def end_loop(self) -> None:
        """End the loop of the running epoch."""
        if self._loop is not None:
            self._loop.end()
        self._loop = None

    def load_rng_state(self, stock: Callable[..., None], checkpoint: Any) -> None:
        """Stand in for `Trainer._load_rng_state`: a newcomer has the streams of the lost rank."""
        if not self._enters:
            stock(checkpoint)

    def skip_first_batches(self, stock: Callable[..., Any], loader: Any, *args: Any, **kwargs: Any) -> Any:
        """Stand in for the function of this name, by which a resumed training leaves batches out."""
        return loader if loader is self._data else stock(loader, *args, **kwargs)


def _without(loader: Any, count: int) -> Any:
    """Return the loader without its first batches, on which an earlier job has trained."""
    return sys.modules["transformers.trainer"].skip_first_batches(loader, count)
