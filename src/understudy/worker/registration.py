"""Is what the script has registered enough? What it has made and not registered could not be moved to a newcomer."""

from __future__ import annotations

import torch
from torch.amp.grad_scaler import GradScaler
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from understudy.worker.optimizers import parameters_of
from understudy.worker.state import State

_wrappers: list[DistributedDataParallel] = []


def watch_wrappers() -> None:
    """Remembers every DistributedDataParallel that is made from now on (a public hook of torch.nn tells)."""

    def made(module: torch.nn.Module, name: str, submodule: torch.nn.Module | None) -> None:
        if isinstance(module, DistributedDataParallel) and name == "module":
            _wrappers.append(module)

    torch.nn.modules.module.register_module_module_registration_hook(made)


def uncovered(state: State) -> str:
    """What is wrong with the registration as a whole, or ""."""
    if loose := _unregistered(state):
        return (
            f"DistributedDataParallel over {', '.join(loose)} is not registered, so its state could not be given to a spare: "
            "add it to job.register(...)"
        )
    if any(isinstance(part, FullyShardedDataParallel) for module in state.modules.values() for part in module.modules()):
        return "FullyShardedDataParallel (FSDP1) is not covered: use torch.distributed.fsdp.fully_shard (FSDP2)"
    known = {id(parameter) for _, parameter in state.parameters()} | {id(tensor) for tensor in state.tensors.values()}
    for name, optimizer in state.optimizers.items():
        if not all(id(parameter) in known for parameter in parameters_of(optimizer)):
            return f"optimizer {name} steps parameters of a model that is not registered: add the model to job.register(...)"
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


def _unregistered(state: State) -> list[str]:
    """Distributed modules that the script made but did not register (their state could not be moved)."""
    known = {id(part) for module in state.modules.values() for part in module.modules()}
    return [
        type(wrapper.module).__qualname__ for wrapper in list(_wrappers) if id(wrapper) not in known and id(wrapper.module) not in known
    ]
