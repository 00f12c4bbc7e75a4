"""Is what the script has registered enough? What it has made and not registered could not be moved to a newcomer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from understudy.worker.errors import Misuse
from understudy.worker.frameworks import comm_hooks, pipelines
from understudy.worker.state.optimizers import parameters_of
from understudy.worker.state.registry import State

_wrappers: list[DistributedDataParallel] = []


def watch_frameworks(training: Callable[[], bool]) -> None:
    """Remembers every DistributedDataParallel that is made from now on (a public hook of torch.nn tells), and communication hooks; refuses
    `join`. `training`: whether the first transaction has begun.
    """

    def made(module: torch.nn.Module, name: str, submodule: torch.nn.Module | None) -> None:
        if isinstance(module, DistributedDataParallel) and name == "module":
            if training():
                raise Misuse(
                    f"DistributedDataParallel over {type(submodule).__qualname__} is made after training began: a spare that takes a "
                    "rank later could not make it in the same state. Make it before the first transaction, and add it to job.register(...)"
                )
            _wrappers.append(module)

    def refuse_join(self: Join, *args: Any, **kwargs: Any) -> None:
        make_join(self, *args, **kwargs)
        if self._enable:
            raise Misuse(
                "join() of torch.distributed.algorithms (uneven inputs) lets ranks that have no batch any more take part in the others' "
                "collectives, outside of all transactions: give every rank as many batches, as DistributedSampler does, or drop the rest"
            )

    torch.nn.modules.module.register_module_module_registration_hook(made)
    make_join = Join.__init__
    Join.__init__ = refuse_join  # type: ignore[method-assign]
    comm_hooks.watch()
    pipelines.watch(training)


def wrappers(state: State) -> list[DistributedDataParallel]:
    """Every DistributedDataParallel that was made, and copies of them that are registered; on all ranks in the same order."""
    found = {id(wrapper): wrapper for wrapper in _wrappers}
    for module in state.modules.values():
        for part in module.modules():
            if isinstance(part, DistributedDataParallel):
                found.setdefault(id(part), part)
    return [wrapper for wrapper in found.values() if hasattr(wrapper, "reducer")]


def uncovered(state: State) -> str:
    """What is wrong with the registration as a whole, or ""."""
    if loose := _unregistered(state):
        return (
            f"DistributedDataParallel over {', '.join(loose)} is not registered, so its state could not be given to a spare: "
            "add it to job.register(...)"
        )
    if any(isinstance(part, FullyShardedDataParallel) for module in state.modules.values() for part in module.modules()):
        return "FullyShardedDataParallel (FSDP1) is not covered: use torch.distributed.fsdp.fully_shard (FSDP2)"
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


def _unregistered(state: State) -> list[str]:
    """Distributed modules that the script made but did not register (their state could not be moved)."""
    known = {id(part) for module in state.modules.values() for part in module.modules()}
    return [
        type(wrapper.module).__qualname__ for wrapper in list(_wrappers) if id(wrapper) not in known and id(wrapper.module) not in known
    ]


def _unsupported(state: State) -> str:
    """What of a framework's objects could not be done again, or on a newcomer."""
    if lacking := pipelines.unsupported():
        return lacking
    registered = {id(thing) for thing in [*state.values.values(), *state.tensors.values(), *state.optimizers.values()]}
    for wrapper in wrappers(state):
        title = f"DistributedDataParallel over {type(wrapper.module).__qualname__}"
        for hook in comm_hooks.hooks_of(wrapper.reducer):
            if kept := comm_hooks.keeps(hook, registered):
                return (
                    f"{title} has the communication hook {hook.name}, which keeps {kept} between two steps: a spare would not have its "
                    "content. Register that object (it needs state_dict and load_state_dict), or use a hook without a state"
                )
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
