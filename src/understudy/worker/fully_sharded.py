"""What FSDP2 keeps between calls: what of a failed attempt has to go before a redo, and what steers its collectives.

FSDP2 keeps gathered parameters, pending reductions and unsharded gradients of the failed attempt; `reset_iter_state` alone leaves
a stale gradient behind that would be added to the redo's.
"""

from __future__ import annotations

from typing import Any

import torch


def is_sharded(module: torch.nn.Module) -> bool:
    return hasattr(module, "_get_fsdp_state") and hasattr(module, "reset_iter_state")


def _groups(state: Any) -> list[Any]:
    many = getattr(state, "_fsdp_param_groups", None)
    one = getattr(state, "_fsdp_param_group", None)
    return list(many) if many else [one] if one is not None else []


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
                    "parameters": [str(parameter._param_fqn) for parameter in group.fsdp_params],
                    "gradient reduction": [bool(group.reduce_grads), bool(group.all_reduce_grads), bool(group.reshard_after_backward)],
                },
            )
        )
    return found


def _size(mesh_info: Any) -> int:
    """To how many parts parameters go between forward and backward; 0: they stay gathered."""
    return 0 if mesh_info is None else int(getattr(mesh_info, "shard_mesh_size", 0) or -1)
