"""Checks whether enough is registered: objects that the script has made and not registered could not be moved to a newcomer.

Objects of frameworks are left to their adapters (`frameworks`).
"""

from __future__ import annotations

import gc

import torch
from torch.amp.grad_scaler import GradScaler

from understudy.messages import script
from understudy.worker.errors import UsageError
from understudy.worker.state.optimizers import parameters_of
from understudy.worker.state.registry import State


def uncovered(state: State) -> str:
    """Return the problem with the registration as a whole, or ""."""
    if lacking := _unsupported(state):
        return lacking
    known = {id(parameter) for _, parameter in state.parameters()} | {id(tensor) for tensor in state.tensors.values()}
    for name, optimizer in state.optimizers.items():
        if unknown := [parameter for parameter in parameters_of(optimizer) if id(parameter) not in known]:
            if _belong_to_a_module(unknown):
                return script.MODEL_NOT_REGISTERED(optimizer=name)
            return script.TENSORS_NOT_REGISTERED(optimizer=name, count=len(unknown), shape=tuple(unknown[0].shape))
    for name, optimizer in state.optimizers.items():
        if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
            return script.ZERO_REDUNDANCY(optimizer=name)
    scheduled: set[int] = set()
    others = 0
    for thing in state.values.values():
        mine = [getattr(thing, "optimizer", None), *(getattr(s, "optimizer", None) for s in getattr(thing, "_schedulers", []))]
        scheduled |= {id(optimizer) for optimizer in mine if optimizer is not None}
        others += all(optimizer is None for optimizer in mine) and not isinstance(thing, GradScaler)
    for name, optimizer in state.optimizers.items():
        wrapped = getattr(optimizer.step, "_wrapped_by_lr_sched", False)
        if wrapped and id(optimizer) not in scheduled and not others:
            return script.SCHEDULE_NOT_REGISTERED(optimizer=name)
    return ""


def _belong_to_a_module(tensors: list[torch.Tensor]) -> bool:
    """Return whether any of `tensors` is a parameter of a module of the script. Searches all objects: only for a fatal error."""
    wanted = set(map(id, tensors))
    modules = (thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module) and "_parameters" in vars(thing))
    return any(id(parameter) in wanted for module in modules for parameter in module._parameters.values())


def _unsupported(state: State) -> str:
    """Return the feature of the modules that could not be redone."""
    for key, module in state.modules.items():
        for name, part in module.named_modules():
            if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and part.sparse and part.weight.requires_grad:
                return script.SPARSE_EMBEDDING(module=f"{key}.{name}" if name else key, type=type(part).__qualname__)
    return ""


def refuse_sparse_gradients(state: State) -> None:
    """Raise `UsageError` for a sparse gradient. Called before a vote, when gradients are complete."""
    for name, gradient in state.gradients():
        if gradient.layout is not torch.strided:
            raise UsageError(script.SPARSE_GRADIENT(parameter=name.removesuffix("/gradient")))
