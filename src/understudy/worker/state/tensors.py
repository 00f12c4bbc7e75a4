"""Small things that are done with one tensor of a rank's state: its local memory, its description, its digest, its place."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from understudy.messages import encoding, registered
from understudy.worker.encoding.digests import digest, digest_bytes
from understudy.worker.encoding.messages import Placed, TensorDescription
from understudy.worker.errors import BadMessage, UsageError

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that this rank holds of `tensor`."""
    local: torch.Tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return local.detach()


def changes(tensor: torch.Tensor) -> int:
    """How often `tensor` was changed in place, as torch counts it: not through `.data` or numpy. A DTensor counts what is done to it,
    and its memory what is done to that; neither counts `torch._foreach_` functions over DTensors (torch 2.13 to 2.14).
    """
    if type(tensor) in _PLAIN:
        return tensor._version
    return tensor._version + tensor._local_tensor._version if isinstance(tensor, DTensor) else tensor._version


def counts_changes(tensor: torch.Tensor) -> bool:
    """Inference tensors do not."""
    return not (tensor.is_inference() or (isinstance(tensor, DTensor) and tensor._local_tensor.is_inference()))


def dtype_of(description: TensorDescription) -> torch.dtype:
    """Raises `BadMessage` if there is no such type."""
    found = getattr(torch, description.dtype, None)
    if not isinstance(found, torch.dtype):
        raise BadMessage(encoding.UNKNOWN_DTYPE(dtype=description.dtype))
    return found


def empty(description: TensorDescription, like: torch.Tensor, entry: str) -> torch.Tensor:
    """Memory as a donor describes it."""
    device = torch.device("cpu") if description.device == "cpu" else local_tensor(like).device
    local = torch.empty_strided(description.shape, description.stride, dtype=dtype_of(description), device=device)
    if description.placements is None:
        return local
    if not isinstance(like, DTensor):
        raise UsageError(registered.NOT_A_DTENSOR(entry=entry))
    lying = [_unpacked(packed, theirs) for packed, theirs in zip(description.placements, like.placements, strict=True)]
    return DTensor.from_local(local, like.device_mesh, lying, run_check=False, shape=like.shape, stride=like.stride())


def fit(tensor: torch.Tensor, description: TensorDescription, entry: str) -> None:
    """Gives it the shape that is described, if it has another one: it stays the script's own, with other memory, whose content is not
    set."""
    wanted = dtype_of(description), description.shape, description.stride
    if not isinstance(tensor, DTensor) and (tensor.dtype, list(tensor.shape), list(tensor.stride())) != wanted:
        tensor.grad = None
        tensor.data = empty(description, tensor, entry)


def put_back(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Makes `tensor` stand at `memory` again, in its shape, if a script has put it elsewhere (`.data =`, `resize_`)."""
    holder = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if holder.data_ptr() != memory.data_ptr() or holder.shape != memory.shape or holder.stride() != memory.stride():
        holder.data = memory


def in_place(old: Any, new: Any) -> Any:
    """`new`, in the tensors of `old` where they fit: a script may hold these, as with a learning rate that is a tensor."""
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) and old.shape == new.shape and old.dtype == new.dtype:
        with torch.no_grad():
            old.copy_(new)
        return old
    if isinstance(old, list | tuple) and type(old) is type(new) and len(old) == len(new):
        return type(new)(in_place(one, other) for one, other in zip(old, new, strict=True))
    return new


def is_trained(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf


def describe(tensor: torch.Tensor, owner: str) -> TensorDescription:
    local = local_tensor(tensor)
    kind = str(local.dtype).removeprefix("torch.")
    placements = [_packed(placement) for placement in tensor.placements] if isinstance(tensor, DTensor) else None
    return TensorDescription(kind, list(local.shape), list(local.stride()), placements, owner, local.device.type)


def _packed(placement: Placement) -> Placed:
    """A gradient may lie otherwise than its parameter. Kinds that are not known here are taken over from the parameter."""
    if type(placement) is Shard:
        return Placed("shard", dimension=placement.dim)
    if type(placement) is Partial:
        return Placed("partial", reduction=placement.reduce_op)
    return Placed("replicate" if type(placement) is Replicate else "")


def _unpacked(placed: Placed, like: Placement) -> Placement:
    if placed.kind == "shard":
        return Shard(placed.dimension)
    if placed.kind == "partial":
        return Partial(placed.reduction)
    return Replicate() if placed.kind == "replicate" else like


def size_of(description: TensorDescription) -> int:
    """Bytes of the tensor that is described."""
    return math.prod(description.shape) * int(dtype_of(description).itemsize)


def _shard(tensor: torch.Tensor) -> str:
    """Which shard of a DTensor this is: shards are never replicas of each other, even when their content is equal by chance."""
    if not isinstance(tensor, DTensor):
        return ""
    coordinate: list[int] = list(tensor.device_mesh.get_coordinate() or [])
    return ",".join(str(c) for c, placement in zip(coordinate, tensor.placements, strict=False) if placement.is_shard())


def digest_of(tensor: torch.Tensor) -> int:
    """The digest of this rank's part of a tensor, with which part it is."""
    value, shard = digest(local_tensor(tensor)), _shard(tensor)
    return value ^ digest_bytes(shard.encode()) if shard else value
