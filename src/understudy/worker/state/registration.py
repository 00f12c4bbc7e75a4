"""Is what the script has registered enough? What it has made and not registered could not be moved to a newcomer.

What frameworks have made is their adapters' affair (`frameworks`).
"""

from __future__ import annotations

import torch
from torch.amp.grad_scaler import GradScaler

from understudy.worker.errors import Misuse
from understudy.worker.state.optimizers import parameters_of
from understudy.worker.state.registry import State


def uncovered(state: State) -> str:
    """What is wrong with the registration as a whole, or ""."""
    if lacking := _unsupported(state):
        return lacking
    known = {id(parameter) for _, parameter in state.parameters()} | {id(tensor) for tensor in state.tensors.values()}
    for name, optimizer in state.optimizers.items():
        if not all(id(parameter) in known for parameter in parameters_of(optimizer)):
            return f"optimizer {name} steps parameters of a model that is not registered: add the model to job.register(...)"
    for name, optimizer in state.optimizers.items():
        if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
            return (
                f"optimizer {name} is a ZeroRedundancyOptimizer: its state is on one rank only, and its step broadcasts parameters "
                f"behind the vote. "
                "Use torch.distributed.fsdp.fully_shard on a 2-D mesh (HSDP)"
            )
    scheduled: set[int] = set()
    others = 0
    for thing in state.values.values():
        mine = [getattr(thing, "optimizer", None), *(getattr(s, "optimizer", None) for s in getattr(thing, "_schedulers", []))]
        scheduled |= {id(optimizer) for optimizer in mine if optimizer is not None}
        others += all(optimizer is None for optimizer in mine) and not isinstance(thing, GradScaler)
    for name, optimizer in state.optimizers.items():
        wrapped = getattr(optimizer.step, "_wrapped_by_lr_sched", False)
        if wrapped and id(optimizer) not in scheduled and not others:
            return f"optimizer {name} has a learning rate schedule that is not registered: add it to job.register(...)"
    return ""


def _unsupported(state: State) -> str:
    """What of the modules could not be done again."""
    for key, module in state.modules.items():
        for name, part in module.named_modules():
            if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and part.sparse and part.weight.requires_grad:
                return (
                    f"{key}{'.' if name else ''}{name} ({type(part).__qualname__}) has sparse=True: sparse gradients are not covered. "
                    "Use sparse=False, and an optimizer for dense gradients"
                )
    return ""


def refuse_sparse_gradients(state: State) -> None:
    """In front of a vote, when gradients are complete. Raises `Misuse`."""
    for name, gradient in state.gradients():
        if gradient.layout is not torch.strided:
            raise Misuse(
                f"{name.removesuffix('/gradient')} has a sparse gradient, which is not covered: make it dense, as with sparse=False"
            )
