"""Operations on one tensor of a rank's state: its local memory, description, digest and address."""

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
    """Return the memory of `tensor` on this rank."""
    local: torch.Tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return local.detach()


def changes(tensor: torch.Tensor) -> int:
    """Return how often `tensor` was changed in place, as torch counts it: not through `.data` or numpy. A DTensor counts changes of
    itself, and its memory counts its own; neither counts `torch._foreach_` functions over DTensors (torch 2.13 to 2.14).
    """
    if type(tensor) in _PLAIN:
        return tensor._version
    return tensor._version + tensor._local_tensor._version if isinstance(tensor, DTensor) else tensor._version


def counts_changes(tensor: torch.Tensor) -> bool:
    """Return whether torch counts changes of `tensor`. It does not for inference tensors."""
    return not (tensor.is_inference() or (isinstance(tensor, DTensor) and tensor._local_tensor.is_inference()))


def dtype_of(description: TensorDescription) -> torch.dtype:
    """Return the dtype that is described. Raises `BadMessage` if there is no such type."""
    found = getattr(torch, description.dtype, None)
    if not isinstance(found, torch.dtype):
        raise BadMessage(encoding.UNKNOWN_DTYPE(dtype=description.dtype))
    return found


def empty(description: TensorDescription, like: torch.Tensor, entry: str) -> torch.Tensor:
    """Allocate memory as a donor describes it."""
    device = torch.device("cpu") if description.device == "cpu" else local_tensor(like).device
    local = torch.empty_strided(description.shape, description.stride, dtype=dtype_of(description), device=device)
    if description.placements is None:
        return local
    if not isinstance(like, DTensor):
        raise UsageError(registered.NOT_A_DTENSOR(entry=entry))
    lying = [_unpacked(packed, theirs) for packed, theirs in zip(description.placements, like.placements, strict=True)]
    return DTensor.from_local(local, like.device_mesh, lying, run_check=False, shape=like.shape, stride=like.stride())


def fit(tensor: torch.Tensor, description: TensorDescription, entry: str) -> None:
    """Give `tensor` the described shape, if it has another one. It stays the script's own object, with other memory, whose content is not
    set."""
    wanted = dtype_of(description), description.shape, description.stride
    if not isinstance(tensor, DTensor) and (tensor.dtype, list(tensor.shape), list(tensor.stride())) != wanted:
        tensor.grad = None
        tensor.data = empty(description, tensor, entry)


def put_back(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Point `tensor` to `memory` again, with its shape, if a script has given it other memory (`.data =`, `resize_`)."""
    holder = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if holder.data_ptr() != memory.data_ptr() or holder.shape != memory.shape or holder.stride() != memory.stride():
        holder.data = memory


def in_place(old: Any, new: Any) -> Any:
    """Return `new`, in the tensors of `old` where they fit: a script may refer to these, as with a learning rate that is a tensor."""
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
    """Describe a placement. A gradient may be placed differently from its parameter. Kinds that are not known here are taken from the
    parameter.
    """
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
    """Return the size of the described tensor in bytes."""
    return math.prod(description.shape) * int(dtype_of(description).itemsize)


def _shard(tensor: torch.Tensor) -> str:
    """Return the shard of a DTensor. Different shards are never replicas of each other, even when their content is equal by chance."""
    if not isinstance(tensor, DTensor):
        return ""
    coordinate: list[int] = list(tensor.device_mesh.get_coordinate() or [])
    return ",".join(str(c) for c, placement in zip(coordinate, tensor.placements, strict=False) if placement.is_shard())


def digest_of(tensor: torch.Tensor) -> int:
    """Return the digest of this rank's part of a tensor, including the position of the part."""
    value, shard = digest(local_tensor(tensor)), _shard(tensor)
    return value ^ digest_bytes(shard.encode()) if shard else value
