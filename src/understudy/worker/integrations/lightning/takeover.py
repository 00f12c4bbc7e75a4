"""Find the `Trainer` that is about to make the process group, and let the job make it instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any

from understudy.messages import integrations
from understudy.worker.errors import UsageError
from understudy.worker.integrations.base import Integration, JobOfTrainer
from understudy.worker.integrations.lightning.files import share_versions
from understudy.worker.integrations.lightning.fit import Fit
from understudy.worker.integrations.lightning.points import Lightning
from understudy.worker.state.registry import State

_MODULES = {f"{root}.trainer.trainer": root for root in ("lightning.pytorch", "pytorch_lightning")}
_CALLBACKS = (
    "BackboneFinetuning",
    "BatchSizeFinder",
    "LearningRateFinder",
    "StochasticWeightAveraging",
    "WeightAveraging",
    "EMAWeightAveraging",
)


def trainer_of(frame: FrameType | None) -> tuple[str, Any] | None:
    """Return the package of Lightning, and the trainer whose `fit` calls the code of `frame`; None if there is none."""
    while frame is not None:
        root = _MODULES.get(frame.f_globals.get("__name__", ""))
        if root is not None and frame.f_code.co_name == "_run":
            return root, frame.f_locals["self"]
        frame = frame.f_back
    return None


class LightningTrainers(Integration):
    @staticmethod
    def take_over_group(frame: FrameType, join: Callable[[], tuple[JobOfTrainer, State]]) -> bool:
        found = trainer_of(frame)
        if found is not None:
            take_over(*found, join)
        return found is not None


def take_over(root: str, trainer: Any, join: Callable[[], tuple[JobOfTrainer, State]]) -> None:
    """Let the job make the process group, and wrap the trainer. Raises `UsageError` for what is not supported."""
    lightning = Lightning(root)
    lightning.check(trainer)
    _refuse(lightning, trainer)
    job, state = join()
    share_versions(trainer.loggers, job.newcomer)
    Fit(lightning, trainer, job, state).wrap()


def _refuse(lightning: Lightning, trainer: Any) -> None:
    strategy = trainer.strategy
    if type(strategy) is not lightning.find("strategies.ddp", "DDPStrategy"):
        raise UsageError(integrations.LIGHTNING_STRATEGY(strategy=type(strategy).__qualname__))
    found = [f"the callback {name}" for one in trainer.callbacks if (name := type(one).__name__) in _CALLBACKS]
    known = {"reload_dataloaders_every_n_epochs": trainer.reload_dataloaders_every_n_epochs}
    known["val_check_interval as a time"] = trainer._val_check_time_interval is not None
    known["training_step(dataloader_iter)"] = _takes_an_iterator(trainer.lightning_module)
    known["a communication hook of DDPStrategy"] = strategy._ddp_comm_hook is not None
    for feature in (*found, *(name for name, used in known.items() if used)):
        raise UsageError(integrations.LIGHTNING_FEATURE(feature=feature))


def _takes_an_iterator(module: Any) -> bool:
    return "dataloader_iter" in inspect.signature(module.training_step).parameters
