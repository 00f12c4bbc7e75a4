"""Hugging Face `Trainer`: a script needs no line. One that has joined the job itself calls `job.register(trainer=trainer)` before `train`.

The trainer's own loops run. Some methods of this one trainer are wrapped, so that its training consists of transactions:

    update    a step: the number of its items, each forward and backward, and the clipping are recorded calls. It ends where the trainer is
              about to log
    follow    a section after updates that log, evaluate or save, and one at the end of each epoch
    finish    a section for the end of the training
    evaluate  a section for `evaluate` and `predict`, which a script calls itself

Read in transformers 5.24.0.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from understudy.messages import integrations
from understudy.worker import patches
from understudy.worker.census.leaves import is_leaf
from understudy.worker.errors import UsageError
from understudy.worker.integrations.accelerate import SUPPORTED_KINDS, synchronize_once
from understudy.worker.integrations.base import Integration, JobOfTrainer, OpenedTransaction
from understudy.worker.integrations.trainer_epochs import Epochs
from understudy.worker.integrations.trainer_state import Callbacks, Flags, History, OwnState, Rest, Tokens
from understudy.worker.state.registry import State
from understudy.worker.state.streams import Randomness

# The methods that are wrapped, with those of their parameters that are used.
METHODS: dict[str, tuple[str, ...]] = {
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
CALLED: dict[str, tuple[str, ...]] = {"_get_num_items_in_batch": ("batch_samples", "device")}
_PACKAGES = frozenset({"accelerate", "datasets", "transformers", "trl"})  # whose objects hold no state of the script
_UNSUPPORTED = ("auto_find_batch_size", "deepspeed")  # arguments


class Transformers(Integration):
    @staticmethod
    def take_over(name: str, thing: Any, job: JobOfTrainer | None, randomness: Randomness) -> bool:
        kind = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
        if kind is None or not isinstance(thing, kind):
            return False
        if job is not None:
            check(kind, thing)
            TrainerJob(name, thing, job, randomness).wrap()
        return True

    @staticmethod
    def take_over_group(frame: FrameType, join: Callable[[], tuple[JobOfTrainer, State]]) -> bool:
        module = sys.modules.get("transformers.trainer")
        if module is None or not _is_in(frame, "transformers.training_args"):  # without a Trainer its arguments alone are no training
            return False
        job, _ = join()

        def train(stock: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if not METHODS.keys() <= vars(trainer).keys():
                job.register(trainer=trainer)
            return stock(trainer, *args, **kwargs)

        patches.wrap(module.Trainer, "train", train, "the trainer is registered, which needs no line in the script")
        return True


def _is_in(frame: FrameType | None, module: str) -> bool:
    """Return whether code of a module calls the code of `frame`."""
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


def check(kind: Any, trainer: Any) -> None:
    """Raise `UsageError` for a version whose class `kind` lacks something, and for a trainer that is used in another way than supported."""
    if name := lacks(kind):
        version = getattr(sys.modules.get("transformers"), "__version__", "unknown")
        raise UsageError(integrations.TRAINER_CHANGED(version=version, name=name))
    way = trainer.accelerator.distributed_type.name
    if way not in SUPPORTED_KINDS:
        raise UsageError(integrations.ACCELERATE_KIND(kind=way))
    used = [name for name in _UNSUPPORTED if getattr(trainer.args, name, None)]
    if trainer.args.gradient_accumulation_steps > 1 and way == "FSDP":
        used.append("gradient_accumulation_steps and FSDP")
    if used:
        raise UsageError(integrations.TRAINER_ARGUMENT(name=used[0]))


def lacks(kind: Any) -> str:
    """Return a method that the class `kind` lacks, or that has other parameters; "" if there is none."""
    for name, wanted in {**METHODS, **CALLED}.items():
        method = getattr(kind, name, None)
        if method is None or not set(wanted) <= set(inspect.signature(method).parameters):
            return name
    return ""


class TrainerJob:
    """The job of one trainer."""

    def __init__(self, name: str, trainer: Any, job: JobOfTrainer, randomness: Randomness) -> None:
        """`name`: under which the trainer is registered."""
        self._name, self._trainer, self._job = name, trainer, job
        self._kind: Any = sys.modules["transformers.trainer"].Trainer
        self._follow: Callable[[], None] = self.follow  # sections, from the registration on
        self._end_epoch: Callable[[], bool] = self.end_epoch
        self._flags = Flags(trainer)
        self._epochs = Epochs(trainer, job, randomness, lambda: self._stop(self._end_epoch()))
        self._update: OpenedTransaction | None = None
        self._to_follow: Callable[[], None] | None = None  # logs, evaluates and saves after the last update
        self._passes = job.newcomer  # nothing has run yet that the job has not finished
        self._inside = False  # a section or an epoch of this trainer runs

    def wrap(self) -> None:
        """Wrap the methods of the trainer."""
        for name in METHODS:
            around = getattr(self._epochs if name == "_load_rng_state" else self, name.strip("_"))
            patches.wrap(self._trainer, name, around, "Trainer.train consists of transactions")
        handler, module = self._trainer.callback_handler, sys.modules["transformers.trainer"]
        patches.wrap(handler, "call_event", self.call_event, "callbacks of what is over are not called again")
        patches.wrap(module, "skip_first_batches", self._epochs.skip_first_batches, "a newcomer's epoch begins where the job is")

    # -- the set-up ------------------------------------------------------------------------------------------------------

    def prepare_for_training(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        trainer = self._trainer
        if self._epochs.begun:
            raise UsageError(integrations.TRAINED_TWICE())
        model, loader = stock(*args, **kwargs)
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
        gradients, handler = trainer.accelerator.gradient_state, trainer.callback_handler
        owned = [self, trainer, trainer.args, trainer.accelerator, trainer.optimizer, trainer.state, trainer.control, gradients, loader]
        owned += [handler, *handler.callbacks]
        owned += filter(None, (getattr(trainer.model, name, None) for name in ("config", "generation_config")))
        registered = {f"{self._name}.{key}": thing for key, thing in objects.items() if thing is not None}
        self._job.register(owns=owned, **registered)
        others = self._others()
        self._follow = self._job.section(functools.partial(self.follow, others=others))
        self._end_epoch = self._job.section(functools.partial(self.end_epoch, others=others))
        return model, loader

    def _others(self) -> tuple[Any, ...]:
        """Return objects of the script in attributes of the trainer and its callbacks, which only the census can follow."""
        arguments, found = inspect.signature(self._kind).parameters, []
        for owner in (self._trainer, *self._trainer.callback_handler.callbacks):
            given = arguments if owner is self._trainer else ()
            found += [value for name, value in vars(owner).items() if name not in given and not is_leaf(value)]
        return tuple(one for one in found if type(one).__module__.partition(".")[0] not in _PACKAGES)

    def call_event(self, stock: Callable[..., Any], event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Call the callbacks, but not on a newcomer for what the job has finished."""
        is_over = self._passes and (self._epochs.begun or event == "on_epoch_begin")
        return control if is_over else stock(event, args, state, control, **kwargs)

    # -- an update -------------------------------------------------------------------------------------------------------

    def run_epoch(self, stock: Callable[..., None], **given: Any) -> None:
        self._inside = True
        try:
            self._epochs.run(stock, **given)
        finally:
            self._inside = False

    def get_batch_samples(self, stock: Callable[..., Any], epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        if not self._epochs.leads(epoch_iterator):
            return stock(epoch_iterator, num_batches, device)
        if not (samples := self._epochs.draw()):
            return [], None
        update = self._update = self._job.begin(f"{type(self._trainer).__qualname__}.update")
        self._passes = update.passed
        return samples, update.call(self._trainer._get_num_items_in_batch, samples, device)

    def training_step(self, stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        synchronizes = getattr(model, "require_backward_grad_sync", True)
        loss = self._recorded(self._train, synchronizes, stock, model, *args, **kwargs)
        return loss if loss is not None else self._trainer._tr_loss.new_zeros(())  # of an update that a newcomer passes

    def _train(self, synchronizes: bool, stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        """Run forward and backward, with the synchronization of gradients as it was when this was called first."""
        self._trainer.accelerator.gradient_state._set_sync_gradients(synchronizes)
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = synchronizes
        return stock(model, *args, **kwargs)

    def track_num_input_tokens(self, stock: Callable[..., None], inputs: Any) -> None:
        if self._trainer.args.include_num_input_tokens_seen != "no":
            self._recorded(stock, inputs)

    def clip_grad_norm(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._recorded(stock, *args, **kwargs)

    def get_grad_norm(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        norm = self._recorded(stock, *args, **kwargs)
        self._flags.norm = norm.item() if hasattr(norm, "item") else norm
        return norm

    def _recorded(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._update.call(stock, *args, **kwargs) if self._update is not None else stock(*args, **kwargs)

    # -- what follows ----------------------------------------------------------------------------------------------------

    def maybe_log_save_evaluate(self, stock: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        trainer, update, flags = self._trainer, self._update, self._flags
        given = inspect.signature(self._kind._maybe_log_save_evaluate).bind(trainer, *args, **kwargs)

        def follow() -> None:  # with the values of this rank: a newcomer has not computed these arguments
            given.arguments.update(tr_loss=trainer._tr_loss, grad_norm=flags.norm, learning_rate=flags.rate)
            stock(*given.args[1:], **given.kwargs)

        self._to_follow = follow
        if update is None:
            self._epochs.end_loop()
            self._stop(self._end_epoch())
            return
        flags.rate = given.arguments.get("learning_rate")
        update.commit(trainer.control.should_log or trainer.control.should_evaluate or trainer.control.should_save)
        self._update = None
        if update.result:
            self._follow()

    def follow(self, others: tuple[Any, ...] = ()) -> None:
        """Log, evaluate and save after an update. `others`: objects that the census looks into."""
        self._passes = False
        assert self._to_follow is not None
        self._to_follow()

    def end_epoch(self, others: tuple[Any, ...] = ()) -> bool:
        """Do the same at the end of an epoch. Returns whether the training stops."""
        self.follow()
        return bool(self._trainer.control.should_training_stop)

    def _stop(self, stops: bool | None) -> None:
        if stops:
            self._trainer.control.should_training_stop = True

    def finalize_training(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def finish() -> tuple[Any, ...]:
            return tuple(stock(*args, **kwargs))

        self._inside = True
        try:
            found = self._job.section(finish)()
        finally:
            self._inside = False
        self._trainer.is_in_train = False
        return sys.modules["transformers.trainer"].TrainOutput(*found)

    def evaluate(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._alone(stock, *args, **kwargs)

    def predict(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._alone(stock, *args, **kwargs)

    def _alone(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a section, unless it is a part of one, or of the set-up."""
        return stock(*args, **kwargs) if self._inside or not self._epochs.begun else self._job.section(stock)(*args, **kwargs)
