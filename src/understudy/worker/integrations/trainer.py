"""Hugging Face `Trainer`: `job.register(trainer=trainer)` before `trainer.train()`.

The trainer's own loops run. Some methods of this one trainer are wrapped, so that its training consists of transactions:

    update    a step: the number of its items, each forward and backward, and the clipping are recorded calls. It ends where the trainer is
              about to log
    follow    a section after updates that log, evaluate or save, and one at the end of each epoch
    finish    a section for the end of the training
    evaluate  a section for `evaluate` and `predict`, which a script calls itself

The batches of an epoch are a loop that the adapter leads. A newcomer skips epochs that are over, and enters the epoch of the job as if its
training was resumed from a checkpoint there.

Read in transformers 5.24.0.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from understudy.messages import integrations
from understudy.worker import patches
from understudy.worker.data.led_loops import LedLoop
from understudy.worker.errors import UsageError
from understudy.worker.integrations.accelerate import SUPPORTED_KINDS, synchronize_once
from understudy.worker.integrations.base import Integration, JobOfTrainer, OpenedTransaction
from understudy.worker.integrations.trainer_data import EpochData
from understudy.worker.integrations.trainer_state import Callbacks, Flags, History, OwnState, Rest, Tokens
from understudy.worker.state.streams import Randomness

# The wrapped methods, with those of their parameters that are used.
_METHODS: dict[str, tuple[str, ...]] = {
    "_prepare_for_training": ("train_dataloader",),
    "_run_epoch": (
        *("epoch", "train_dataloader", "steps_in_epoch", "num_update_steps_per_epoch"),
        *("resume_from_checkpoint", "epochs_trained", "steps_trained_in_current_epoch"),
    ),
    "get_batch_samples": ("epoch_iterator", "num_batches", "device"),
    "training_step": ("model", "inputs", "num_items_in_batch"),
    "_track_num_input_tokens": ("inputs",),
    "_clip_grad_norm": ("model",),
    "_get_grad_norm": ("model", "grad_norm"),
    "_maybe_log_save_evaluate": ("tr_loss", "grad_norm", "model", "trial", "epoch", "learning_rate"),
    "_load_rng_state": ("checkpoint",),
    "_finalize_training": ("trial", "num_train_samples", "start_time"),
    "evaluate": ("eval_dataset",),
    "predict": ("test_dataset",),
}
_UNSUPPORTED = ("auto_find_batch_size", "deepspeed")  # arguments


class Transformers(Integration):
    @staticmethod
    def take_over(name: str, thing: Any, job: JobOfTrainer | None, randomness: Randomness) -> bool:
        kind = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
        if kind is None or not isinstance(thing, kind):
            return False
        if job is not None:
            TrainerJob(name, thing, job, randomness).wrap()
        return True


class TrainerJob:
    """The job of one trainer."""

    def __init__(self, name: str, trainer: Any, job: JobOfTrainer, randomness: Randomness) -> None:
        """`name`: under which the trainer is registered. Raises `UsageError` for what is not supported."""
        self._name, self._trainer, self._job, self._randomness = name, trainer, job, randomness
        self._kind: Any = sys.modules["transformers.trainer"].Trainer
        self._stock: dict[str, Callable[..., Any]] = {}
        self._flags = Flags(trainer)
        self._data: EpochData | None = None
        self._loop: LedLoop | None = None
        self._update: OpenedTransaction | None = None
        self._given: inspect.BoundArguments | None = None  # of what follows an update or an epoch
        self._passes = job.newcomer  # nothing runs yet that the job has not finished
        self._inside = False  # a section or an epoch of this trainer runs
        self._enters = False  # a newcomer enters in the middle of this epoch
        self._epochs = 0  # loops that have begun
        self._follow, self._end_epoch = job.section(self.follow), job.section(self.end_epoch)
        self._finish = job.section(self.finish)

    def wrap(self) -> None:
        """Wrap the methods. Raises `UsageError` if this version of transformers does not have them."""
        trainer = self._trainer
        kind = trainer.accelerator.distributed_type.name
        if kind not in SUPPORTED_KINDS:
            raise UsageError(integrations.ACCELERATE_KIND(kind=kind))
        if used := [name for name in _UNSUPPORTED if getattr(trainer.args, name, None)]:
            raise UsageError(integrations.TRAINER_ARGUMENT(name=used[0]))
        for name, wanted in _METHODS.items():
            method, known = getattr(trainer, name, None), getattr(self._kind, name, None)  # a subclass may have other parameters
            if method is None or known is None or not set(wanted) <= set(inspect.signature(known).parameters):
                version = getattr(sys.modules.get("transformers"), "__version__", "unknown")
                raise UsageError(integrations.TRAINER_CHANGED(version=version, name=name))
            self._stock[name] = method
            patches.wrap(trainer, name, getattr(self, f"on_{name.strip('_')}"), "Trainer.train consists of transactions")
        handler = trainer.callback_handler
        patches.wrap(handler, "call_event", self._call_event, "callbacks of what is over are not called again")
        skips = "a newcomer's epoch begins where the job is"
        patches.wrap(sys.modules["transformers.trainer"], "skip_first_batches", self._skip_first_batches, skips)

    # -- the set-up ------------------------------------------------------------------------------------------------------

    def on_prepare_for_training(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        trainer = self._trainer
        if self._epochs:
            raise UsageError(integrations.TRAINED_TWICE())
        model, loader = stock(*args, **kwargs)
        if trainer.args.gradient_accumulation_steps > 1 and trainer.accelerator.distributed_type.name == "FSDP":
            raise UsageError(integrations.TRAINER_ARGUMENT(name="gradient_accumulation_steps with FSDP"))
        synchronize_once(loader)
        objects = {
            "model": model,
            "optimizer": getattr(trainer.optimizer, "optimizer", trainer.optimizer),
            "schedule": trainer.lr_scheduler,
            "scaler": getattr(trainer.accelerator, "scaler", None),
            "flags": self._flags,
            "own": OwnState(trainer),
            "rest": Rest(trainer, inspect.signature(self._kind).parameters),
            "history": History(trainer),
            "tokens": Tokens(trainer),
            "callbacks": Callbacks(trainer),
        }
        gradients = trainer.accelerator.gradient_state
        owned = [trainer, trainer.args, trainer.accelerator, trainer.optimizer, trainer.state, trainer.control, gradients, loader, self]
        owned += filter(None, (getattr(trainer.model, name, None) for name in ("config", "generation_config")))
        owned += [trainer.callback_handler, *trainer.callback_handler.callbacks]
        registered = {f"{self._name}.{key}": thing for key, thing in objects.items() if thing is not None}
        self._job.register(owns=owned, **registered)
        return model, loader

    def _call_event(self, stock: Callable[..., Any], event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Call the callbacks, but not on a newcomer for what the job has finished."""
        is_over = self._passes and (self._epochs or event == "on_epoch_begin")
        return control if is_over else stock(event, args, state, control, **kwargs)

    # -- an epoch --------------------------------------------------------------------------------------------------------

    def on_run_epoch(self, stock: Callable[..., None], **given: Any) -> None:
        epoch, loader, accumulated = given["epoch"], given["train_dataloader"], self._trainer.args.gradient_accumulation_steps
        resumed = epoch == given["epochs_trained"] and given["resume_from_checkpoint"] is not None
        before = 0 if not resumed or self._trainer.args.ignore_data_skip else given["steps_trained_in_current_epoch"]
        if before:
            loader = self._skip(loader, before)
        data = self._data = EpochData(loader, self._randomness, accumulated, given["steps_in_epoch"] - before)
        number, self._epochs = self._epochs, self._epochs + 1
        where = self._job.where()
        if not self._job.newcomer and where.loop != number:
            raise UsageError(integrations.TRAINED_AFTER_A_LOOP())
        done = before
        if number < where.loop:  # a newcomer, and this epoch is over
            self._pass_loop(data)
            if number < where.loop - 1 or where.iteration >= 0:
                self._stop(self._end_epoch())
                return
            done = given["steps_in_epoch"]
        elif number == where.loop and self._job.newcomer:
            done += max(where.iteration, 0) * accumulated
        self._enters = done > before
        if self._enters:
            given.update(epochs_trained=epoch, steps_trained_in_current_epoch=done, resume_from_checkpoint="of a running job")
        self._inside = True
        try:
            stock(**{**given, "train_dataloader": data})
        finally:
            self._inside = self._enters = False

    def _pass_loop(self, data: EpochData) -> None:
        """Skip the loop of an epoch that is over, on a newcomer."""
        loop = self._job.lead(data.position, data.go_to)
        with suppress(StopIteration):
            loop.draw(data.take)
        loop.end()

    def on_load_rng_state(self, stock: Callable[..., None], checkpoint: Any) -> None:
        if not self._enters:
            stock(checkpoint)

    def _skip_first_batches(self, stock: Callable[..., Any], loader: Any, *args: Any, **kwargs: Any) -> Any:
        return loader if loader is self._data else stock(loader, *args, **kwargs)

    def _skip(self, loader: Any, count: int) -> Any:
        return sys.modules["transformers.trainer"].skip_first_batches(loader, count)

    # -- an update -------------------------------------------------------------------------------------------------------

    def on_get_batch_samples(self, stock: Callable[..., Any], epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        data = self._data
        if data is None or epoch_iterator is not data:
            return stock(epoch_iterator, num_batches, device)
        if self._loop is None:
            self._loop = self._job.lead(data.position, data.go_to)
        try:
            samples = self._loop.draw(data.take)
        except StopIteration:
            return [], None
        self._update = self._job.begin(f"{type(self._trainer).__qualname__}.update")
        self._passes = self._update.passed
        return samples, self._update.call(self._trainer._get_num_items_in_batch, samples, device)

    def _recorded(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._update.call(stock, *args, **kwargs) if self._update is not None else stock(*args, **kwargs)

    def on_training_step(self, stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        synchronizes = getattr(model, "require_backward_grad_sync", True)
        loss = self._recorded(self._train, synchronizes, stock, model, *args, **kwargs)
        return loss if loss is not None else self._trainer._tr_loss.new_zeros(())  # of an update that a newcomer passes

    def _train(self, synchronizes: bool, stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        """Run forward and backward, with the synchronization of gradients as it was when this was called first."""
        self._trainer.accelerator.gradient_state._set_sync_gradients(synchronizes)
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = synchronizes
        return stock(model, *args, **kwargs)

    def on_track_num_input_tokens(self, stock: Callable[..., None], inputs: Any) -> None:
        if self._trainer.args.include_num_input_tokens_seen != "no":
            self._recorded(stock, inputs)

    def on_clip_grad_norm(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._recorded(stock, *args, **kwargs)

    def on_get_grad_norm(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        norm = self._recorded(stock, *args, **kwargs)
        self._flags.norm = norm.item() if hasattr(norm, "item") else norm
        return norm

    # -- what follows ----------------------------------------------------------------------------------------------------

    def on_maybe_log_save_evaluate(self, stock: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        trainer, update = self._trainer, self._update
        given = inspect.signature(self._kind._maybe_log_save_evaluate).bind(trainer, *args, **kwargs)
        if update is None:
            if self._loop is not None:
                self._loop.end()
            self._loop = None
            self._given = given
            self._stop(self._end_epoch())
            return
        self._flags.rate = given.arguments.get("learning_rate")
        update.commit(trainer.control.should_log or trainer.control.should_evaluate or trainer.control.should_save)
        self._update = None
        if update.result:
            self._given = given
            self._follow()

    def follow(self) -> None:
        """Log, evaluate and save after an update, with the values of this rank: a newcomer has not computed its arguments."""
        given, self._passes = self._given, False
        assert given is not None
        given.arguments.update(tr_loss=self._trainer._tr_loss, grad_norm=self._flags.norm, learning_rate=self._flags.rate)
        self._stock["_maybe_log_save_evaluate"](*given.args[1:], **given.kwargs)

    def end_epoch(self) -> bool:
        """End an epoch. Returns whether the training stops."""
        self.follow()
        return bool(self._trainer.control.should_training_stop)

    def _stop(self, stops: bool | None) -> None:
        if stops:
            self._trainer.control.should_training_stop = True

    def on_finalize_training(self, stock: Callable[..., Any], trial: Any, num_train_samples: Any, start_time: float) -> Any:
        self._inside = True
        try:
            found = self._finish(trial, num_train_samples, start_time)
        finally:
            self._inside = False
        self._trainer.is_in_train = False
        return sys.modules["transformers.trainer"].TrainOutput(*found)

    def finish(self, *args: Any) -> tuple[Any, ...]:
        """End the training. Returns the fields of a `TrainOutput`."""
        return tuple(self._stock["_finalize_training"](*args))

    def on_evaluate(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._alone(stock, *args, **kwargs)

    def on_predict(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._alone(stock, *args, **kwargs)

    def _alone(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a section, unless it is a part of one, or of the set-up."""
        return stock(*args, **kwargs) if self._inside or not self._epochs else self._job.section(stock)(*args, **kwargs)
