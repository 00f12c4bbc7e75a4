"""Hugging Face Accelerate: `job.register(accelerator=accelerator)` after `prepare` registers all that was prepared.

The state of an `Accelerator` outside of model, optimizer and schedule is small: the position in an accumulation, whether gradients are
synchronized, the epochs of its loaders, the number of its next checkpoint, and which loaders are in use.

At every `iter`, a loader that shuffles broadcasts the state of its generator from rank 0. That would be a collective in no transaction.
It is done once, when the accelerator is registered. After that all ranks draw the same from it, so the broadcasts change nothing.

Read in accelerate 1.15.0.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from understudy.messages import integrations
from understudy.worker.data.loaders import LoaderSource
from understudy.worker.errors import UsageError
from understudy.worker.integrations.base import Contents, Integration
from understudy.worker.integrations.prepared_loaders import PreparedSource
from understudy.worker.state.streams import Randomness

SUPPORTED_KINDS = frozenset({"NO", "MULTI_CPU", "MULTI_GPU", "FSDP"})  # FSDP: of version 2; version 1 is refused where it is registered


class Accelerate(Integration):
    @staticmethod
    def contents_of(thing: Any) -> Contents | None:
        accelerator = getattr(sys.modules.get("accelerate"), "Accelerator", None)  # a script may have a module of this name
        if accelerator is None or not isinstance(thing, accelerator):
            return None
        kind = thing.distributed_type.name
        if kind not in SUPPORTED_KINDS:
            raise UsageError(integrations.ACCELERATE_KIND(kind=kind))
        for loader in thing._dataloaders:
            synchronize_once(loader)
        optimizers = [optimizer.optimizer for optimizer in thing._optimizers]
        schedules = [schedule.scheduler for schedule in thing._schedulers]
        kinds = {"model": _wrapped(thing._models), "optimizer": optimizers, "schedule": schedules, "custom": thing._custom_objects}
        found = {f"{name}{number or ''}": one for name, many in kinds.items() for number, one in enumerate(many)}
        if thing.scaler is not None:
            found["scaler"] = thing.scaler
        found["progress"] = AcceleratorProgress(thing)
        owners = [thing, *thing._optimizers, *thing._schedulers, *thing._dataloaders]
        # Each has its own views of the states that all of them share.
        shared = [getattr(owner, name, None) for owner in owners for name in ("state", "accelerator_state", "gradient_state")]
        return Contents(found, owners + [view for view in shared if type(view).__module__ == "accelerate.state"])

    @staticmethod
    def source_of(loader: Any, repeat: bool, randomness: Randomness) -> LoaderSource | None:
        adapter = getattr(sys.modules.get("accelerate.data_loader"), "DataLoaderAdapter", None)
        if adapter is None or not issubclass(type(loader), adapter):
            return None
        if loader.rng_types is not None:
            raise UsageError(integrations.ACCELERATOR_NOT_REGISTERED())
        return PreparedSource(loader, repeat, randomness)


def _wrapped(models: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """Return the DDPs of the models; the Accelerator keeps only the modules inside. Searches all objects: once, in the setup."""
    made = [one for one in gc.get_objects() if type(one) is DistributedDataParallel] if models else []
    return [next((one for one in made if one.module is model), model) for model in models]


def synchronize_once(loader: Any) -> None:
    """Let all ranks draw the same order, and never ask for it again. Raises `UsageError` for a loader that communicates otherwise."""
    module = sys.modules["accelerate.data_loader"]
    if not issubclass(type(loader), module.DataLoaderShard):
        raise UsageError(integrations.DISPATCHED(type=type(loader).__qualname__))
    kinds = [str(getattr(kind, "value", kind)) for kind in loader.rng_types or ()]
    if others := sorted(set(kinds) - {"generator"}):
        raise UsageError(integrations.RNG_TYPES(kinds=", ".join(others)))
    if kinds:
        module.synchronize_rng_states(loader.rng_types, loader.synchronized_generator)
    loader.rng_types = None


class AcceleratorProgress:
    """The state of an `Accelerator` itself. Read and set like that of any registered object."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def state_dict(self) -> dict[str, Any]:
        gradients, loaders = self._accelerator.gradient_state, list(enumerate(self._accelerator._dataloaders))
        return {
            "step": self._accelerator.step,
            "synchronized": gradients.sync_gradients,
            "loaders in use": [number for one in gradients.dataloader_references for number, loader in loaders if loader is one],
            "epochs": [loader.iteration for loader in self._accelerator._dataloaders],
            "checkpoint": self._accelerator.project_configuration.iteration,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        gradients = self._accelerator.gradient_state
        self._accelerator.step = state["step"]
        gradients.sync_gradients = state["synchronized"]
        # A loop that is left early, or that fails in an evaluation, leaves its loader in use.
        gradients.dataloader_references = [None, *(self._accelerator._dataloaders[number] for number in state["loaders in use"])]
        for loader, epoch in zip(self._accelerator._dataloaders, state["epochs"], strict=True):
            loader.iteration = epoch
        self._accelerator.project_configuration.iteration = state["checkpoint"]
