"""What FSDP2 keeps between calls: what of a failed attempt has to go before a redo, and what steers its collectives.

FSDP2 keeps gathered parameters, pending reductions and unsharded gradients of the failed attempt; `reset_iter_state` alone leaves
a stale gradient behind that would be added to the redo's.
"""

from __future__ import annotations

from typing import Any

import torch

from understudy.worker.errors import Misuse

SWITCHES = "switches of the backward"  # the fact that a newcomer adopts
_OF_GROUP = ("reduce_grads", "all_reduce_grads", "reshard_after_backward", "unshard_in_backward")


def is_sharded(module: torch.nn.Module) -> bool:
    return hasattr(module, "_get_fsdp_state") and hasattr(module, "reset_iter_state")


def _groups(state: Any) -> list[Any]:
    many = getattr(state, "_fsdp_param_groups", None)
    one = getattr(state, "_fsdp_param_group", None)
    return list(many) if many else [one] if one is not None else []


def groups_of(module: Any) -> list[Any]:
    return _groups(module._get_fsdp_state())


def switches_of(module: Any, group: Any) -> list[Any]:
    """What the script sets between micro-batches or for an evaluation, and a failed attempt leaves as it was in the middle."""
    state, after_forward = module._get_fsdp_state(), group.post_forward_mesh_info
    resharding = "no" if after_forward is None else "whole" if after_forward is group.mesh_info else "parts"
    switches = [bool(getattr(group, name)) for name in _OF_GROUP]
    return [*switches, bool(state._state_ctx.is_last_backward), bool(state._auto_reshard_after_forward), resharding]


def set_switches(module: Any, group: Any, switches: list[Any]) -> None:
    *switches, last_backward, decides, resharding = switches
    state = module._get_fsdp_state()
    for name, value in zip(_OF_GROUP, switches, strict=True):
        setattr(group, name, value)
    state._state_ctx.is_last_backward = last_backward
    state._auto_reshard_after_forward = decides
    if decides:  # then the first forward makes the root's parameters stay gathered; it may have come behind what is restored here
        group.post_forward_mesh_info = None if state._is_root else group.mesh_info
    elif resharding != "parts":  # which only the constructor can say
        group.post_forward_mesh_info = None if resharding == "no" else group.mesh_info


def refuse_unreduced(group: Any) -> None:
    """In front of a vote: gradients that wait for their reduction in a later transaction are nowhere but in this process."""
    if group.reduce_grads and group.all_reduce_grads:
        return
    if group._partial_reduce_output is not None or any(map(_waits, group.fsdp_params)):
        raise Misuse(
            "fully_shard: gradients are accumulated without reduction over more than one transaction (set_requires_gradient_sync or "
            "set_requires_all_reduce), where a spare could not have them. Put all micro-batches up to the reduction into one @job.step"
        )


def _waits(parameter: Any) -> bool:
    """Whether it has a gradient that is not reduced yet."""
    unsharded = getattr(parameter, "_unsharded_param", None)
    return parameter.unsharded_accumulated_grad is not None or (isinstance(unsharded, torch.Tensor) and unsharded.grad is not None)


def reset(module: Any) -> None:
    """After a failed attempt: all that belongs to the root `module`. Nothing for a module that is not a root, or was never used."""
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


def _told(state: Any, switches: list[Any]) -> list[Any]:
    """Where torch decides about resharding, it has done so on a rank that has had a forward, and not yet on a newcomer."""
    return [*switches[:-1], "torch decides"] if state._auto_reshard_after_forward else switches


def facts(module: Any) -> list[tuple[list[int], dict[str, Any]]]:
    """Of each of its groups of parameters: the global ranks that take part, and what steers the collectives."""
    state = module._get_fsdp_state()
    found = []
    for group in _groups(state):
        mesh = group.mesh_info.mesh
        # The first forward decides which module is the root, and that the root is not resharded, unless the script has said something.
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
                    SWITCHES: _told(state, switches_of(module, group)),
                },
            )
        )
    return found


def _size(mesh_info: Any) -> int:
    """To how many parts parameters go between forward and backward; 0: they stay gathered."""
    return 0 if mesh_info is None else int(getattr(mesh_info, "shard_mesh_size", 0) or -1)
