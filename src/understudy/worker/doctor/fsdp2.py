"""FSDP2: what its modules keep between calls, and what must be dropped before a redo."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from understudy.worker.doctor.base import Probe, expect, has, module, world

WITHOUT = "jobs with fully_shard (FSDP2) cannot recover"
USED_BY = ("frameworks.fsdp2",)


@contextlib.contextmanager
def _sharded() -> Iterator[Any]:
    """Return a sharded module with a sharded layer."""
    torch = module("torch")
    shard = module("torch.distributed.fsdp").fully_shard
    with world():
        mesh = module("torch.distributed.device_mesh").init_device_mesh("cpu", (1,))
        layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        shard(layers[0], mesh=mesh)
        yield shard(layers, mesh=mesh)


def _groups(state: Any) -> list[Any]:
    many = getattr(state, "_fsdp_param_groups", None)
    one = None if many else state._fsdp_param_group
    return list(many) if many else [one] if one is not None else []


def _states() -> None:
    with _sharded() as model:
        root, layer = model._get_fsdp_state(), model[0]._get_fsdp_state()
        expect(not root._is_root, "the first forward decides which module is the root")
        expect((root._auto_reshard_after_forward, layer._auto_reshard_after_forward) == (True, True), "torch notes that it decides itself")
        model(module("torch").ones(1, 2)).sum().backward()
        expect((root._is_root, layer._is_root) == (True, False), "_is_root marks the root")
        expect(set(root._state_ctx.all_states) == {root, layer}, "the root's _state_ctx has all states")
        expect(isinstance(root._state_ctx.is_last_backward, bool), "_state_ctx has whether the next backward is the last")
        model.set_is_last_backward(False)
        expect(root._state_ctx.is_last_backward is False, "set_is_last_backward sets it there")


def _parameter_groups() -> None:
    with _sharded() as model:
        (group,) = _groups(model._get_fsdp_state())
        switches = ("reduce_grads", "all_reduce_grads", "reshard_after_backward", "unshard_in_backward")
        has(group, *switches, "_partial_reduce_output", "_all_gather_result", "mp_policy", "fsdp_params")
        mesh = group.mesh_info.mesh
        expect(mesh.mesh.flatten().tolist() == [0], "a group of parameters has its mesh")
        has(group.mesh_info, "shard_mesh_size")
        expect(group.post_forward_mesh_info is group.mesh_info, "resharding whole is that post_forward_mesh_info is mesh_info")
        model.set_reshard_after_forward(False)
        expect(group.post_forward_mesh_info is None, "not resharding is that there is no post_forward_mesh_info")
        model.set_requires_gradient_sync(False)
        expect(group.reduce_grads is False, "set_requires_gradient_sync is reduce_grads")


def _parameters() -> None:
    with _sharded() as model:
        (group,) = _groups(model[0]._get_fsdp_state())
        weight = group.fsdp_params[0]
        info = weight._module_info
        has(info, "shared_modules", "shared_param_names")
        expect((info.module, info.param_name) == (model[0], "weight"), "a parameter has its module and its name in it")
        expect(weight.sharded_param is model[0].weight, "sharded_param is the module's parameter")
        expect(list(weight._orig_size) == [2, 2], "_orig_size is the size before sharding")
        model.set_requires_gradient_sync(False)
        model.set_reshard_after_backward(False)
        model(module("torch").ones(1, 2)).sum().backward()
        there = weight._unsharded_param
        waits = weight.unsharded_accumulated_grad is not None or there.grad is not None
        expect(waits, "a gradient that waits for its reduction is in unsharded_accumulated_grad or _unsharded_param")


def _reset() -> None:
    """Try that an iteration which stops in the middle of its backward leaves nothing."""
    torch = module("torch")
    base: Any = torch.autograd.Function

    class Stops(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            raise RuntimeError("stopped")

    with _sharded() as model:
        model(torch.ones(1, 2)).sum().backward()
        expected = [p.grad.full_tensor().clone() for p in model.parameters()]
        model.zero_grad()
        hook = model[0].register_forward_hook(lambda part, args, out: Stops.apply(out))
        with contextlib.suppress(RuntimeError):
            model(torch.ones(1, 2)).sum().backward()
        hook.remove()
        model.zero_grad()
        for state in model._get_fsdp_state()._state_ctx.all_states:
            for group in _groups(state):
                group._all_gather_result = None
        model.reset_iter_state()
        for state in model._get_fsdp_state()._state_ctx.all_states:
            for parameter in (p for group in _groups(state) for p in group.fsdp_params):
                parameter.unsharded_accumulated_grad = None
                if isinstance(unsharded := getattr(parameter, "_unsharded_param", None), torch.Tensor):
                    unsharded.grad = None
        model(torch.ones(1, 2)).sum().backward()
        found = [p.grad.full_tensor() for p in model.parameters()]
        same = all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
        expect(same, "after reset_iter_state an iteration gives the same gradients as the stopped one would have")


FSDP2 = (
    Probe(
        "fsdp2-states",
        "which modules are sharded, and their state",
        USED_BY,
        (
            *("_get_fsdp_state", "_is_root", "_auto_reshard_after_forward", "_state_ctx"),
            *("_fsdp_param_group", "_fsdp_param_groups"),
        ),
        _states,
        WITHOUT,
    ),
    Probe(
        "fsdp2-groups",
        "what steers the collectives of each group of parameters",
        USED_BY,
        ("_partial_reduce_output",),
        _parameter_groups,
        WITHOUT,
    ),
    Probe(
        "fsdp2-parameters",
        "where shards are, and gradients that are not reduced yet",
        USED_BY,
        ("_module_info", "_orig_size", "_unsharded_param"),
        _parameters,
        WITHOUT,
    ),
    Probe("fsdp2-reset", "what a failed attempt has left is dropped before its redo", USED_BY, ("_all_gather_result",), _reset, WITHOUT),
)
