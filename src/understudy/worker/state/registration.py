"""Is what the script has registered enough? What it has made and not registered could not be moved to a newcomer.

What frameworks have made is their adapters' affair (`frameworks`).
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
    """What is wrong with the registration as a whole, or ""."""
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
    """Whether any of them is a parameter of a module that the script has somewhere. Looks at all objects: for what ends the job only."""
    wanted = set(map(id, tensors))
    modules = (thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module) and "_parameters" in vars(thing))
    return any(id(parameter) in wanted for module in modules for parameter in module._parameters.values())


def _unsupported(state: State) -> str:
    """What of the modules could not be done again."""
    for key, module in state.modules.items():
        for name, part in module.named_modules():
            if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and part.sparse and part.weight.requires_grad:
                return script.SPARSE_EMBEDDING(module=f"{key}.{name}" if name else key, type=type(part).__qualname__)
    return ""


def refuse_sparse_gradients(state: State) -> None:
    """In front of a vote, when gradients are complete. Raises `UsageError`."""
    for name, gradient in state.gradients():
        if gradient.layout is not torch.strided:
            raise UsageError(script.SPARSE_GRADIENT(parameter=name.removesuffix("/gradient")))
