"""FSDP2: what must be dropped of a failed attempt before a redo, what steers its collectives, and where it keeps its shards.

FSDP2 keeps gathered parameters, pending reductions and unsharded gradients of the failed attempt; `reset_iter_state` alone leaves a
stale gradient that would be added to the redo's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from understudy.messages import frameworks
from understudy.worker.errors import UsageError
from understudy.worker.frameworks.base import Described, FrameworkAdapter, Memberships, Registered, SharedObject, described_by_users

SWITCHES = "switches of the backward"  # the fact that a newcomer adopts
_OF_GROUP = ("reduce_grads", "all_reduce_grads", "reshard_after_backward", "unshard_in_backward")


@dataclass(frozen=True)
class Switches:
    """The switches that the script sets between micro-batches or for an evaluation, and that a failed attempt leaves as they were in the
    middle.
    """

    reduce_grads: bool
    all_reduce_grads: bool
    reshard_after_backward: bool
    unshard_in_backward: bool
    last_backward: bool
    torch_decides: bool  # whether to reshard after a forward
    resharding: str  # after a forward, as it is decided now: no, whole, parts

    def packed(self) -> list[Any]:
        values = [self.reduce_grads, self.all_reduce_grads, self.reshard_after_backward, self.unshard_in_backward]
        return [*values, self.last_backward, self.torch_decides, self.resharding]

    @classmethod
    def unpacked(cls, data: Any) -> Switches:
        """Decode. Raises `ValueError` for anything but the result of `packed`."""
        match data:
            case [bool(), bool(), bool(), bool(), bool(), bool(), str()]:
                return cls(*data)
        raise ValueError(frameworks.NOT_SWITCHES(found=repr(data)[:200]))


class Fsdp2(FrameworkAdapter):
    passing: frozenset[str] = frozenset({SWITCHES})

    def __init__(self, registered: Registered, groups: Memberships) -> None:
        super().__init__(registered, groups)
        self._known: list[tuple[Any, Any]] | None = None  # modules and their groups of parameters
        self._begun: list[Switches] = []  # of each group, as the present attempt found it

    def _sharded(self) -> list[Any]:
        return [part for module in self.registered.modules.values() for part in module.modules() if is_sharded(part)]

    def _parameter_groups(self) -> list[tuple[Any, Any]]:
        if self._known is None:
            self._known = [(module, group) for module in self._sharded() for group in groups_of(module)]
        return self._known

    def uncovered(self) -> str:
        if any(isinstance(part, FullyShardedDataParallel) for module in self.registered.modules.values() for part in module.modules()):
            return frameworks.FSDP1()
        return ""

    @staticmethod
    def shards_of(module: torch.nn.Module) -> dict[tuple[int, str], torch.Tensor]:
        found: dict[tuple[int, str], torch.Tensor] = {}
        for part in filter(is_sharded, module.modules()):
            for group in groups_of(part):
                for parameter in group.fsdp_params:
                    info = parameter._module_info
                    names = [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names, strict=True)]
                    found |= {(id(owner), name): parameter.sharded_param for owner, name in names}
        return found

    @staticmethod
    def reshard(module: torch.nn.Module) -> None:
        for part in filter(is_sharded, module.modules()):
            part.reshard()  # type: ignore[operator]

    @staticmethod
    def keeps_parameters(part: torch.nn.Module) -> bool:
        return is_sharded(part)

    def replaces_parameters(self) -> bool:
        return bool(self._sharded())

    def settle(self) -> None:
        for _, group in self._parameter_groups():
            refuse_unreduced(group)

    def begin(self) -> None:
        """Note the switches, and free what the forward of an evaluation has left gathered: a redo, and a newcomer, has to gather it."""
        for _, group in self._parameter_groups():
            if group.is_unsharded and is_freed_by_backward(group):
                group.reshard()
        self._begun = [switches_of(module, group) for module, group in self._parameter_groups()]

    def redoes_otherwise(self) -> bool:
        """Return whether parameters stay gathered from step to step, as a frozen teacher's: in a redo they are gathered once more."""
        return any(group.is_unsharded and not is_freed_by_backward(group) for _, group in self._parameter_groups())

    def reset(self) -> None:
        for part in self._sharded():
            reset(part)

    def restore(self) -> None:
        for (module, group), switches in zip(self._parameter_groups(), self._begun, strict=False):
            set_switches(module, group, switches)

    def not_drilled(self) -> str:
        return frameworks.STAYS_GATHERED() if self.redoes_otherwise() else ""

    def described(self) -> Described:
        found: Described = {}
        for key, whole in self.registered.modules.items():
            for name, part in whole.named_modules():
                for number, (ranks, facts) in enumerate(facts_of(part) if is_sharded(part) else []):
                    title = f"fully_shard of {key}{'.' if name else ''}{name}"
                    found[f"fsdp/{key}/{name}/{number}/{ranks}"] = SharedObject(tuple(ranks), title, facts)
        return found

    def adopt(self, reports: Mapping[int, Described]) -> None:
        for (module, group), (name, mine) in zip(self._parameter_groups(), self.described().items(), strict=True):
            if (theirs := described_by_users(reports, name, mine.ranks)) is not None:
                set_switches(module, group, Switches.unpacked(theirs.facts[SWITCHES]))


def is_sharded(module: torch.nn.Module) -> bool:
    return hasattr(module, "_get_fsdp_state") and hasattr(module, "reset_iter_state")


def _groups(state: Any) -> list[Any]:
    many = getattr(state, "_fsdp_param_groups", None)
    one = getattr(state, "_fsdp_param_group", None)
    return list(many) if many else [one] if one is not None else []


def groups_of(module: Any) -> list[Any]:
    return _groups(module._get_fsdp_state())


def is_freed_by_backward(group: Any) -> bool:
    return bool(group.reshard_after_backward) and any(parameter.sharded_param.requires_grad for parameter in group.fsdp_params)


def switches_of(module: Any, group: Any) -> Switches:
    state, after_forward = module._get_fsdp_state(), group.post_forward_mesh_info
    resharding = "no" if after_forward is None else "whole" if after_forward is group.mesh_info else "parts"
    of_group = {name: bool(getattr(group, name)) for name in _OF_GROUP}
    return Switches(
        **of_group,
        last_backward=bool(state._state_ctx.is_last_backward),
        torch_decides=bool(state._auto_reshard_after_forward),
        resharding=resharding,
    )


def set_switches(module: Any, group: Any, switches: Switches) -> None:
    state = module._get_fsdp_state()
    for name in _OF_GROUP:
        setattr(group, name, getattr(switches, name))
    state._state_ctx.is_last_backward = switches.last_backward
    state._auto_reshard_after_forward = switches.torch_decides
    if switches.torch_decides:
        # Then the first forward makes the root's parameters stay gathered; it may have come after the state that is restored here.
        group.post_forward_mesh_info = None if state._is_root else group.mesh_info
    elif switches.resharding != "parts":  # which only the constructor can set
        group.post_forward_mesh_info = None if switches.resharding == "no" else group.mesh_info


def refuse_unreduced(group: Any) -> None:
    """Refuse, before a vote, gradients that wait for their reduction in a later transaction: they exist only in this process."""
    if group.reduce_grads and group.all_reduce_grads:
        return
    if group._partial_reduce_output is not None or any(map(_waits, group.fsdp_params)):
        raise UsageError(frameworks.UNREDUCED())


def _waits(parameter: Any) -> bool:
    """Return whether it has a gradient that is not reduced yet."""
    unsharded = getattr(parameter, "_unsharded_param", None)
    return parameter.unsharded_accumulated_grad is not None or (isinstance(unsharded, torch.Tensor) and unsharded.grad is not None)


def reset(module: Any) -> None:
    """Reset, after a failed attempt, all that belongs to the root `module`. Does nothing for a module that is not a root, or was never
    used.
    """
    if not module._get_fsdp_state()._is_root:  # None before the first forward
        return
    groups = [group for state in module._get_fsdp_state()._state_ctx.all_states for group in _groups(state)]
    for group in groups:
        group._all_gather_result = None
    module.reset_iter_state()
    for group in groups:
        for parameter in group.fsdp_params:
            parameter.unsharded_accumulated_grad = None
            unsharded = getattr(parameter, "_unsharded_param", None)
            if isinstance(unsharded, torch.Tensor):
                unsharded.grad = None


def _reported(switches: Switches) -> Switches:
    """Return the switches to report. Where torch decides about resharding, it has done so on a rank that has had a forward, and not yet on
    a newcomer.
    """
    return replace(switches, resharding="torch decides") if switches.torch_decides else switches


def facts_of(module: Any) -> list[tuple[list[int], dict[str, Any]]]:
    """Return, of each of its groups of parameters, the global ranks that take part, and what steers the collectives."""
    state = module._get_fsdp_state()
    found = []
    for group in _groups(state):
        mesh = group.mesh_info.mesh
        # The first forward decides which module is the root, and that the root is not resharded, unless the script has set that.
        reshard: Any = "torch decides" if state._auto_reshard_after_forward else _size(group.post_forward_mesh_info)
        found.append(
            (
                sorted(mesh.mesh.flatten().tolist()),
                {
                    "mesh": [list(mesh.mesh.shape), list(mesh.mesh_dim_names or ())],
                    "reshard_after_forward": reshard,
                    "mixed precision": repr(group.mp_policy),
                    "sizes of parameters": [
                        list(parameter._orig_size) for parameter in group.fsdp_params
                    ],  # names come with the first forward
                    SWITCHES: _reported(switches_of(module, group)).packed(),
                },
            )
        )
    return found


def _size(mesh_info: Any) -> int:
    """Return to how many parts parameters go between forward and backward; 0: they stay gathered."""
    return 0 if mesh_info is None else int(getattr(mesh_info, "shard_mesh_size", 0) or -1)
