"""Steps and sections of `Trainer.fit`, and the way of a newcomer through it.

Lightning's own loops run; what they call is wrapped. A section decides what follows it, as the loops would: the next batch, the next
epoch, or the end. It does the end of an epoch and the begin of the next one itself, and the loops then skip them. A newcomer that passes
a section is in the iteration that the job has reached, or in the one before it, so another batch follows, and it begins an epoch if the
one that it drew was the last.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from understudy.messages import integrations
from understudy.worker import patches
from understudy.worker.census.leaves import is_leaf
from understudy.worker.data.led_loops import LedLoop
from understudy.worker.errors import UsageError
from understudy.worker.integrations.base import JobOfTrainer
from understudy.worker.integrations.lightning.data import DrawnFetcher, Item, TrainingData
from understudy.worker.integrations.lightning.files import FreeNames
from understudy.worker.integrations.lightning.metrics import Outputs
from understudy.worker.integrations.lightning.points import Lightning
from understudy.worker.integrations.lightning.registration import holdings_of
from understudy.worker.state.registry import State


class _Next(enum.Enum):
    """What follows an iteration."""

    BATCH = enum.auto()
    EPOCH = enum.auto()
    END = enum.auto()


@dataclass
class _Iteration:
    """The running iteration."""

    item: Item | None = None  # its batch, as it was drawn
    ended: tuple[Any, Any, int] | None = None  # outputs, batch and number of its step
    handed: Any = None  # the outputs of its step, with manual optimization, if a newcomer has passed it
    over: bool = False  # the loader has ended without a batch
    next: _Next = _Next.BATCH


class _BatchEnds(Exception):
    """Ends a step at the first hook after it. Has the arguments of that hook."""

    def __init__(self, outputs: Any, batch: Any, number: int) -> None:
        super().__init__()
        self.outputs, self.batch, self.number = outputs, batch, number


class _Passed(Exception):
    """Ends `_FitLoop.run` on a newcomer, because the job has finished it."""


class Fit:
    """The job of one trainer."""

    def __init__(self, lightning: Lightning, trainer: Any, job: JobOfTrainer, state: State) -> None:
        self._lightning, self._trainer, self._job = lightning, trainer, job
        self._epoch = trainer.fit_loop.epoch_loop
        self._data = TrainingData(self._fit, lightning.find("loops.fit_loop", "_set_sampler_epoch"), state.randomness)
        self._gradients = state.kept_gradients
        self._names, self._outputs = FreeNames(), Outputs()
        self._iteration = _Iteration()
        self._inside = ""  # the kind of the running transaction
        self._stock: dict[str, Callable[..., Any]] = {}  # Lightning's functions
        self._loop: LedLoop | None = None

    @property
    def _fit(self) -> Any:
        return self._trainer.fit_loop

    def wrap(self) -> None:
        """Wrap Lightning's methods."""
        why = "Trainer.fit is divided into steps and sections"
        around: dict[tuple[str, str], Callable[..., Any]] = {
            ("loops.fit_loop", "_FitLoop.run"): self._run,
            ("loops.fit_loop", "_FitLoop.on_run_start"): self._on_run_start,
            ("loops.fit_loop", "_FitLoop.on_advance_start"): self._on_advance_start,
            ("loops.fit_loop", "_FitLoop.on_advance_end"): self._on_advance_end,
            ("loops.fit_loop", "_FitLoop.on_run_end"): self._on_run_end,
            ("loops.training_epoch_loop", "_TrainingEpochLoop.advance"): self._advance,
            ("loops.training_epoch_loop", "_TrainingEpochLoop.on_advance_end"): self._on_batch_end,
            ("loops.optimization.automatic", "_AutomaticOptimization._training_step"): self._training_step,
            ("loops.fetchers", "_PrefetchDataFetcher.__iter__"): self._data.opened,
            ("callbacks.model_checkpoint", "ModelCheckpoint.file_exists"): self._file_exists,
            ("trainer.call", "_call_callback_hooks"): self._call_callback_hooks,
            ("trainer.trainer", "Trainer._run"): self._evaluate,
            ("trainer.trainer", "Trainer.save_checkpoint"): self._as_section,
            ("fabric.loggers.csv_logs", "_ExperimentWriter._check_log_dir_exists"): self._check_log_folder,
        }
        for (module, name), function in around.items():
            owner, _, method = name.rpartition(".")
            target = self._lightning.find(module, owner) if owner else self._lightning.module(module)
            self._stock[name] = getattr(target, method)
            patches.wrap(target, method, function, why)

    # -- the set-up ------------------------------------------------------------------------------------------------------

    def _run(self, stock: Callable[[Any], None], loop: Any) -> None:
        if loop is not self._fit:
            return stock(loop)
        if self._data.running:
            raise UsageError(integrations.SECOND_FIT())
        with suppress(_Passed):
            stock(loop)
        if self._loop is not None:
            self._loop.end()
        return None

    def _on_run_start(self, stock: Callable[[Any], None], loop: Any) -> None:
        stock(loop)
        if loop is not self._fit:
            return
        validation, trainer = self._epoch.val_loop, self._trainer
        if validation._combined_loader is None:  # a validation would make it, with collectives, that a newcomer would make later
            trainer.validating = True
            validation.setup_data()
            trainer.training = True
        self._stock["_FitLoop.on_advance_start"](loop)
        self._register()
        self._data.begin()
        where = self._job.where()
        self._loop = self._job.lead(self._data.position, self._data.go_to)
        if where.loop > 0:
            with suppress(StopIteration):
                self._loop.draw(self._data.draw)
            raise _Passed
        if where.iteration >= 0 and self._job.newcomer:  # it does not begin where a checkpoint was, if its set-up has loaded one
            for one in (loop, self._epoch, validation, self._epoch.automatic_optimization, self._epoch.manual_optimization):
                one.on_iteration_done()

    def _register(self) -> None:
        held = holdings_of(self._trainer, self._lightning, self._outputs)
        self._gradients.read_in_sections = held.reads_gradients
        self._job.register(**held.registered, owns=[self, self._data, *held.owned])
        step = self.training_step if self._trainer.lightning_module.automatic_optimization else self.manual_training_step
        self._step = self._job.step(functools.partial(step, others=held.others))
        self._section = self._job.section(functools.partial(self.after_training_step, others=held.others))
        self._other_section = self._job.section(self.after_training)

    # -- iterations ------------------------------------------------------------------------------------------------------

    def _on_advance_start(self, stock: Callable[[Any], None], loop: Any) -> None:
        if loop is not self._fit:
            stock(loop)  # for ours the set-up or the section before it has done it

    def _advance(self, stock: Callable[..., None], loop: Any, data_fetcher: Any) -> None:
        if loop is not self._epoch:
            return stock(loop, data_fetcher)
        assert self._loop is not None
        here = self._iteration = _Iteration()
        validates = loop.restarting and loop._should_check_val_fx(data_fetcher)
        if validates and (loop.val_loop.restarted_mid_evaluation or loop.restarted_on_last):
            return stock(loop, data_fetcher)  # which draws no batch: it resumes from a checkpoint of a validation
        here.item = self._loop.draw(self._data.draw)
        if here.item is None:
            here.over = True
            self._on_batch_end(stock, loop, data_fetcher)
            raise StopIteration
        here.handed = self._step(here.item)
        return None

    def training_step(self, item: Item, others: tuple[Any, ...] = ()) -> None:
        """The step: everything from the batch to the optimizer and its schedules. `others`: objects that only the census looks into."""
        self._inside = "step"
        try:
            self._stock["_TrainingEpochLoop.advance"](self._epoch, DrawnFetcher(item, self._data.at_end))
        except _BatchEnds as ended:
            self._iteration.ended = ended.outputs, ended.batch, ended.number
        except StopIteration:
            raise UsageError(integrations.EPOCH_LEFT()) from None
        finally:
            self._inside = ""

    def manual_training_step(self, item: Item, others: tuple[Any, ...] = ()) -> Any:
        """The same with manual optimization, where the outputs are known after the vote only. Returns them for a newcomer."""
        self.training_step(item)
        outputs = self._iteration.ended[0] if self._iteration.ended is not None else None
        return outputs if is_leaf(outputs) else None

    def _call_callback_hooks(self, stock: Callable[..., None], trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> None:
        if self._inside == "step" and hook_name == "on_train_batch_end" and trainer is self._trainer:
            raise _BatchEnds(*args)
        stock(trainer, hook_name, *args, **kwargs)

    def _training_step(self, stock: Callable[..., Any], loop: Any, kwargs: Any) -> Any:
        result = stock(loop, kwargs)
        if loop is self._epoch.automatic_optimization:
            self._outputs.put(result.asdict())
        return result

    def _on_batch_end(self, stock: Callable[..., None], loop: Any, data_fetcher: Any) -> None:
        if loop is not self._epoch:
            return stock(loop, data_fetcher)
        self._iteration.next = _Next.EPOCH if self._data.at_end else _Next.BATCH  # on a newcomer that passes the section
        self._section()
        self._names.committed(self._trainer, self._job.newcomer)
        if self._iteration.next is not _Next.BATCH:
            raise StopIteration
        return None

    def after_training_step(self, others: tuple[Any, ...] = ()) -> None:
        """The section after the step: hooks, logging, validation; after an epoch its end, and the begin of the next one, or the end."""
        self._inside = "section"
        try:
            self._names.attempt(self._job.committed)
            self._iteration.next = self._end_iteration(self._iteration)
        finally:
            self._inside = ""

    def _end_iteration(self, here: _Iteration) -> _Next:
        fit, epoch = self._fit, self._epoch
        if here.item is not None:
            self._end_batch(here, here.item)
        if not here.over:
            self._stock["_TrainingEpochLoop.on_advance_end"](epoch, fit._data_fetcher)
        epoch.on_iteration_done()
        if not here.over and not epoch.done:
            return _Next.BATCH
        self._stock["_FitLoop.on_advance_end"](fit)
        fit.on_iteration_done()
        follows = _Next.END if fit.done else _Next.EPOCH
        self._stock["_FitLoop.on_run_end" if follows is _Next.END else "_FitLoop.on_advance_start"](fit)
        return follows

    def _end_batch(self, here: _Iteration, item: Item) -> None:
        """Do the rest of `_TrainingEpochLoop.advance`."""
        trainer, epoch, call = self._trainer, self._epoch, self._lightning.module("trainer.call")
        outputs, batch, number = here.ended or self._passed(here, item)
        if epoch._results.batch is None:  # on a newcomer
            epoch._results.batch = batch
        for hooks in (call._call_callback_hooks, call._call_lightning_module_hook):
            hooks(trainer, "on_train_batch_end", outputs, batch, number)
        trainer._logger_connector.on_batch_end()
        epoch.batch_progress.increment_completed()
        trainer._logger_connector.update_train_step_metrics()

    def _passed(self, here: _Iteration, item: Item) -> tuple[Any, Any, int]:
        """Return outputs, batch and number on a newcomer that has passed the step."""
        batch = self._lightning.module("trainer.call")._call_strategy_hook(self._trainer, "batch_to_device", item[0], dataloader_idx=0)
        automatic = self._trainer.lightning_module.automatic_optimization
        return self._outputs.value if automatic else here.handed, batch, self._epoch.batch_idx

    def _on_advance_end(self, stock: Callable[[Any], None], loop: Any) -> None:
        if loop is not self._fit:
            return stock(loop)
        if self._iteration.next is _Next.END:
            raise StopIteration
        return None

    def _on_run_end(self, stock: Callable[[Any], None], loop: Any) -> None:
        if loop is not self._fit:
            stock(loop)

    # -- after `Trainer.fit` -----------------------------------------------------------------------------------------------

    def after_training(self) -> Any:
        """A section: an evaluation, or a checkpoint that the script saves."""
        self._inside = "section"
        try:
            return self._asked()
        finally:
            self._inside = ""

    def _evaluate(self, stock: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
        fits = trainer.state.fn == "fit"
        return stock(trainer, *args, **kwargs) if fits else self._as_section(stock, trainer, *args, **kwargs)

    def _as_section(self, stock: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
        if trainer is not self._trainer or self._loop is None or self._inside:
            return stock(trainer, *args, **kwargs)
        self._asked = functools.partial(stock, trainer, *args, **kwargs)
        return self._other_section()

    # -- files -------------------------------------------------------------------------------------------------------------

    def _file_exists(self, stock: Callable[..., bool], callback: Any, filepath: Any, trainer: Any) -> bool:
        if trainer is not self._trainer or self._inside != "section":
            return stock(callback, filepath, trainer)
        return self._names.file_exists(callback, filepath, trainer)

    def _check_log_folder(self, stock: Callable[[Any], None], writer: Any) -> None:
        """Remove the log of another run, but not that of a newcomer's own rank."""
        if not self._job.newcomer:
            stock(writer)
