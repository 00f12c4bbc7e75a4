"""Readers for tensors, modules, optimizers and loaders."""

from __future__ import annotations

import functools
import types
from collections.abc import Hashable
from typing import Any

import torch
from torch.nn import UninitializedBuffer, UninitializedParameter

from understudy.worker.census.leaves import LARGEST, mark
from understudy.worker.census.readers.reading import Part, Reading, attributes, is_class_of_script, script_hooks
from understudy.worker.census.walk import Path, attributes_of
from understudy.worker.encoding.digests import digest
from understudy.worker.state.attributes import is_plain_attribute
from understudy.worker.state.history import has_history

_OF_OPTIMIZERS = frozenset({"state", "param_groups", "defaults", "step", "found_inf", "grad_scale"})
_OF_SAMPLERS = frozenset({"epoch", "generator", "sampler", "batch_sampler"})
_HOOKS_OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOOKS_OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OF_EVERY_MODULE = frozenset(torch.nn.Module().__dict__)


def tensor_parts(path: Path, tensor: torch.Tensor) -> tuple[Part, ...]:
    """Return hooks and attributes of a tensor."""
    hooks = [part for name in _HOOKS_OF_TENSORS for part in script_hooks(path.then("attribute", name), getattr(tensor, name, None))]
    attributes = () if type(tensor).__module__.startswith("torch.distributed") else attributes_of(path, tensor)
    return (*hooks, *attributes)


def gradient_parts(path: Path, tensor: torch.Tensor) -> tuple[Part, ...]:
    """Return the gradient of a tensor that is not registered."""
    return attributes(path, grad=tensor.grad if tensor.is_leaf or tensor.retains_grad else None)


def read_tensor(path: Path, tensor: torch.Tensor) -> Reading:
    """Return the content of a tensor, and its parts."""
    parts = [*tensor_parts(path, tensor), *gradient_parts(path, tensor)]
    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):  # a lazy module's
        return Reading("uninitialized", tuple(parts))
    if has_history(tensor):
        return Reading((tensor.dtype, tensor.shape), tuple(parts))
    if tensor.layout is torch.sparse_coo:
        return Reading(tensor.shape, (*parts, *attributes(path, indices=tensor._indices(), values=tensor._values())))
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return Reading((tensor.dtype, tensor.shape, tensor._version), tuple(parts))
    return Reading((tensor.requires_grad, _content(tensor.detach())), tuple(parts))


def _content(tensor: torch.Tensor) -> Hashable:
    if type(tensor) is not torch.Tensor:  # of a subclass, whose own code would run
        tensor = tensor.as_subclass(torch.Tensor) if not hasattr(tensor, "_local_tensor") else tensor._local_tensor
    if tensor.numel() * tensor.element_size() > LARGEST or tensor.device.type != "cpu":
        return mark(tensor)
    return tensor.dtype, tensor.shape, digest(tensor.clone().contiguous())  # numpy may see the copy alone: see `leaves`


def read_module(path: Path, module: torch.nn.Module) -> Reading:
    """Return hooks, and attributes that are not carried."""
    attributes = vars(module)
    parts = [part for name in _HOOKS_OF_MODULES for part in script_hooks(path.then("attribute", name), attributes.get(name))]
    if not type(module).__module__.startswith(("torch.nn.parallel", "torch.distributed")):
        parts += [
            (path.then("attribute", name), value)
            for name, value in list(attributes.items())
            if name not in _OF_EVERY_MODULE and type(value) is not torch.Tensor and not is_plain_attribute(value)
        ]
    for table in (module._modules, module._parameters):
        parts += [(path.then("attribute", name), part) for name, part in list(table.items()) if part is not None]
    return Reading(None, tuple(parts))


def read_optimizer(path: Path, optimizer: torch.optim.Optimizer) -> Reading:
    """Return hooks and attributes."""
    attributes = vars(optimizer)
    parts = [part for name in _HOOKS_OF_OPTIMIZERS for part in script_hooks(path.then("attribute", name), attributes.get(name))]
    if not type(optimizer).__module__.startswith("torch.distributed"):
        parts += [
            (path.then("attribute", name), value)
            for name, value in list(attributes.items())
            if name not in _OF_OPTIMIZERS and not name.startswith("_")
        ]
    return Reading(None, tuple(parts))


def read_sampler(path: Path, sampler: torch.utils.data.Sampler[Any]) -> Reading:
    """Return the attributes of a sampler, without those by which a loop of the job reaches its place in it."""
    return Reading(None, tuple(part for part in attributes_of(path, sampler) if part[0].steps[-1][1] not in _OF_SAMPLERS))


def read_loader(path: Path, loader: Any) -> Reading:
    """Return the attributes of a loader, and those that the script has added to its samplers."""
    attributes = [(name, value) for name, value in list(vars(loader).items()) if not name.startswith("_") and name != "generator"]
    parts = [(path.then("attribute", name), value) for name, value in attributes if "sampler" not in name]
    for name, sampler in attributes:
        if "sampler" in name and hasattr(sampler, "__dict__") and not is_class_of_script(type(sampler)):
            own, way = _named_by(type(sampler)), path.then("attribute", name)  # type: ignore[arg-type]
            parts += [
                (way.then("attribute", key), value) for key, value in list(vars(sampler).items()) if key not in own and key[:2] != "__"
            ]
    return Reading(None, tuple(parts))


@functools.cache
def _named_by(kind: type[Any]) -> frozenset[str]:
    """Return the attributes that the methods of a class name."""
    functions = [value for base in kind.__mro__ for value in vars(base).values() if isinstance(value, types.FunctionType)]
    return frozenset(name for function in functions for name in function.__code__.co_names)
