"""The state of a rank: tensors and their changes, modules, optimizers, histories, generators of random numbers."""

from __future__ import annotations

import random
from typing import Any

from understudy.worker.doctor.base import Changed, Probe, expect, has, module, world

READ_INSTEAD = "the state of these generators is read at every step, which takes tens of microseconds"


def _versions() -> None:
    torch = module("torch")
    tensor = torch.zeros(2)
    before = tensor._version
    tensor[0] = 1
    tensor.view(2).add_(1)
    expect(tensor._version == before + 2, "_version counts changes in place, also those through a view")
    tensor.data.add_(1)
    expect(tensor._version == before + 2, "_version does not count changes through .data")
    expect(tensor.view(2)._is_view() and not tensor._is_view(), "_is_view marks a part of another tensor")


def _local_tensors() -> None:
    torch, tensor = module("torch"), module("torch.distributed.tensor")
    with world():
        mesh = module("torch.distributed.device_mesh").init_device_mesh("cpu", (1,))
        whole = tensor.distribute_tensor(torch.ones(2), mesh, [tensor.Shard(0)])
        local = whole._local_tensor
        with torch.no_grad():
            before = local._version, whole._version
            local.add_(1)
            expect(whole.full_tensor().tolist() == [2.0, 2.0], "_local_tensor is the memory of a DTensor")
            whole.add_(1)
            expect(local.tolist() == [3.0, 3.0], "a DTensor is changed in the memory of its _local_tensor")
        after = local._version, whole._version
        expect(after == (before[0] + 1, before[1] + 1), "each counts the changes that are made through it, and not those through the other")


def _modules() -> None:
    torch = module("torch")
    layer = torch.nn.BatchNorm1d(2)
    expect(layer._parameters["weight"] is layer.weight and layer._buffers["running_mean"] is layer.running_mean, "modules have tables")
    whole = torch.nn.Sequential(layer)
    expect(whole._modules["0"] is layer, "_modules has the parts of a module")
    layer._buffers["running_mean"] = other = torch.ones(2)
    expect(layer.running_mean is other, "an entry of a table is the module's attribute")
    own = set(torch.nn.Module().__dict__)
    expect({"training", "_parameters", "_buffers", "_modules", "_forward_pre_hooks"} <= own, "a module has its tables in its __dict__")


def _hooks() -> None:
    torch = module("torch")
    layer, weight = torch.nn.Linear(2, 2), torch.ones(2, requires_grad=True)
    layer.register_forward_hook(print)
    layer.register_forward_pre_hook(print)
    layer.register_full_backward_hook(print)
    layer.register_full_backward_pre_hook(print)
    for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        expect(list(vars(layer)[name].values()) == [print], f"{name} has the hooks of a module")
    weight.register_hook(print)
    weight.register_post_accumulate_grad_hook(print)
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        expect(list(getattr(weight, name).values()) == [print], f"{name} has the hooks of a tensor")
    optimizer = torch.optim.SGD([weight])
    optimizer.register_step_pre_hook(print)
    optimizer.register_step_post_hook(print)
    for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        expect(list(vars(optimizer)[name].values()) == [print], f"{name} has the hooks of an optimizer")
    handle = torch.nn.modules.module.register_module_forward_hook(print)
    try:
        expect(print in vars(torch.nn.modules.module)["_global_forward_hooks"].values(), "_global_forward_hooks has those of all modules")
    finally:
        handle.remove()


def _sparse() -> None:
    torch = module("torch")
    tensor = torch.eye(2).to_sparse()
    tensor._values().fill_(2)
    expect(tensor.to_dense().sum().item() == 4 and tuple(tensor._indices().shape) == (2, 2), "_values is the memory of a sparse tensor")


def _computed_attributes() -> None:
    """Try how attributes that each forward computes are recognized: by a hook of torch's that names them."""
    torch, prune = module("torch"), module("torch.nn.utils.prune")
    spectral = module("torch.nn.utils.spectral_norm").spectral_norm(torch.nn.Linear(2, 2))
    pruned = prune.identity(torch.nn.Linear(2, 2), "weight")
    for layer, name in ((spectral, "name"), (pruned, "_tensor_name")):
        (hook,) = layer._forward_pre_hooks.values()
        expect(type(hook).__module__.startswith("torch.nn.utils."), "the hooks of torch.nn.utils are objects of that package")
        expect(getattr(hook, name) == "weight", f"such a hook has the name of the attribute in {name}")


def _copies() -> None:
    torch = module("torch")
    targets, sources = [torch.zeros(2), torch.zeros(1, dtype=torch.float64)], [torch.ones(2), torch.ones(1, dtype=torch.float64)]
    torch._foreach_copy_(targets, sources)
    expect([t.tolist() for t in targets] == [[1.0, 1.0], [1.0]], "_foreach_copy_ copies into each of the first tensors")


def _scalers() -> None:
    torch = module("torch")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter])
    scaler.scale(parameter.sum()).backward()
    scaler.unscale_(optimizer)
    stages = scaler._per_optimizer_states
    expect(len(stages) == 1 and id(optimizer) in stages, "_per_optimizer_states has the stage of a GradScaler for each optimizer")
    before = dict(stages[id(optimizer)])
    stages.clear()
    scaler.unscale_(optimizer)  # would raise: it has been done
    stages.update({id(optimizer): before})
    try:
        scaler.unscale_(optimizer)
    except RuntimeError:
        return
    raise Changed("not so any more: a GradScaler depends on _per_optimizer_states")


def _schedules() -> None:
    torch = module("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    expect(not getattr(optimizer.step, "_wrapped_by_lr_sched", False), "an optimizer without a schedule is not wrapped")
    schedules = module("torch.optim.lr_scheduler")
    parts = [schedules.ConstantLR(optimizer), schedules.ExponentialLR(optimizer, 0.9)]
    chain = schedules.SequentialLR(optimizer, parts, [1])
    optimizer.step()
    expect(vars(optimizer)["_opt_called"] is True, "a schedule notes at its optimizer that it has made a step")
    expect(optimizer.step._wrapped_by_lr_sched, "a schedule marks the step of its optimizer with _wrapped_by_lr_sched")
    expect(list(chain._schedulers) == parts and parts[0].optimizer is optimizer, "_schedulers has the parts of a schedule")


def _step_hooks() -> None:
    torch, hooks, seen = module("torch"), module("torch.optim.optimizer"), list[str]()
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    parameter.sum().backward()
    handles = [
        hooks.register_optimizer_step_pre_hook(lambda *_: seen.append(f"before {parameter.item()}")),
        hooks.register_optimizer_step_post_hook(lambda *_: seen.append(f"after {parameter.item()}")),
    ]
    try:
        optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    expect(seen == ["before 1.0", "after 0.0"], "hooks for all optimizers run right before and right after the change of parameters")


def _histories() -> None:
    torch = module("torch")
    value = torch.ones(2, requires_grad=True)
    product = value * value
    node: Any = product.grad_fn
    names = [name for name in dir(type(node)) if name.startswith("_raw_saved_")]
    expect(names, "a node has what it saves in _raw_saved_*")
    expect(all(getattr(node, name).data is not None for name in names), "before a backward the saved tensors of a node exist")
    product.sum().backward()
    expect(all(getattr(node, name).data is None for name in names), "after a backward the saved tensors of a node are gone")

    base: Any = torch.autograd.Function

    class Own(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, given: Any) -> Any:
            ctx.save_for_backward(given)
            return given.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    result = Own.apply(value)
    node = result.grad_fn
    expect(node._raw_saved_tensors, "a node of a function in Python has _raw_saved_tensors")
    result.sum().backward()
    try:
        node._raw_saved_tensors  # noqa: B018  # it raises
    except RuntimeError:
        return
    raise Changed("not so any more: after a backward a node of a function in Python raises when its saved tensors are read")


def _generators() -> None:
    fingerprint = module("understudy.worker.state.rng_fingerprint")
    if fingerprint._torch_tells() is None:
        raise Changed("a torch.Generator does not show in its memory that it moves")


def _other_generators() -> None:
    """Try the generators of Python and numpy, which exist alongside torch's."""
    numpy, fingerprint = module("numpy"), module("understudy.worker.state.rng_fingerprint")
    has(random, "_inst")
    has(numpy.random.mtrand, "_rand")
    has(numpy.random.mtrand._rand, "_bit_generator")
    expect(fingerprint._python_tells(), "Python's generator shows in its memory that it moves")
    expect(fingerprint._numpy_tells(), "numpy's generator shows in its memory that it moves")


STATE = (
    Probe(
        "tensor-versions",
        "which tensors have changed in place",
        ("state.tensors", "census.leaves", "census.attempted", "census.readers.of_torch"),
        ("_version", "_is_view"),
        _versions,
    ),
    Probe(
        "dtensor-memory",
        "a rank's shard of a DTensor",
        ("state.tensors", "collectives.setup_record", "encoding.contents", "census.readers.of_torch"),
        ("_local_tensor",),
        _local_tensors,
    ),
    Probe(
        "module-tables",
        "parameters, buffers and attributes of modules are copied and put back in place",
        (
            *("state.registry", "state.attributes", "state.registration", "state.sharding", "census.walk", "census.readers.of_torch"),
            *("guards.loop_checks", "fault_injection.silent"),
        ),
        ("_parameters", "_buffers", "_modules"),
        _modules,
    ),
    Probe(
        "computed-attributes",
        "attributes that each forward computes are no state",
        ("state.attributes",),
        ("_forward_pre_hooks", "_tensor_name"),
        _computed_attributes,
    ),
    Probe(
        "hooks",
        "a hook that the script adds or removes is reported",
        ("census.readers.of_torch", "census.foreign"),
        (
            *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks"),
            *("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_global_", "_hooks"),
        ),
        _hooks,
    ),
    Probe(
        "sparse-tensors",
        "a change of a sparse tensor is reported",
        ("census.readers.of_torch",),
        ("_indices", "_values"),
        _sparse,
    ),
    Probe("foreach-copy", "many tensors are copied at once", ("state.registry",), ("_foreach_copy_",), _copies),
    Probe("scaler-stages", "a GradScaler is put back as an attempt found it", ("state.registry",), ("_per_optimizer_states",), _scalers),
    Probe(
        "schedules",
        "a learning rate schedule that is not registered is found",
        ("state.registration", "state.attributes"),
        ("_wrapped_by_lr_sched", "_schedulers", "_opt_called"),
        _schedules,
    ),
    Probe("step-hooks", "the vote is right before the optimizer's step", ("step.runtime", "fault_injection.silent"), (), _step_hooks),
    Probe(
        "histories",
        "a tensor with a history that a backward could use is not handed over",
        ("state.history",),
        ("_raw_saved_",),
        _histories,
    ),
    Probe(
        "torch-generators",
        "whether torch's generators have moved, without reading their state",
        ("state.rng_fingerprint",),
        ("_cdata",),
        _generators,
        READ_INSTEAD,
    ),
    Probe(
        "other-generators",
        "the same of Python's and numpy's",
        ("state.rng_fingerprint", "state.registry"),
        ("_inst", "_rand", "_bit_generator"),
        _other_generators,
        READ_INSTEAD,
    ),
)
