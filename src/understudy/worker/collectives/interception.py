"""Kernels that are called before every collective: kernels of the `c10d` operators, through which each of them passes.

Every collective, from Python, from C++ (DDP), from autograd and of functional collectives, passes torch's dispatcher. A kernel at the
dispatch key BackendSelect sees it: that key is part of every dispatch, and no `c10d` operator uses it, so nothing is displaced.

The kernels are installed from `join` on, for as long as the process lives (`intercept`). To remove one while another thread dispatches,
as `dcp.async_save` does, ends in an internal assertion of torch or worse. Code that wants to see collectives is a client (`Kernels`),
which may be added and removed at any time. There may be several at once, as when a spare replays collectives and a guard notes which
Works are not waited for: the one that was installed last is called first, after the clients with `first`, and it calls the one before
it, at last the operator itself. While there is no client a collective costs one call of Python more than without the kernel.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.distributed import ProcessGroup, Work, distributed_c10d

from understudy.worker import patches

# operator -> the arguments that it writes into, and those that it reads
OPERATORS = {
    "allreduce_": ("tensors", "tensors"),
    "allreduce_coalesced_": ("tensors", "tensors"),
    "broadcast_": ("tensors", "tensors"),
    "reduce_": ("tensors", "tensors"),
    "allgather_": ("output_tensors", "input_tensors"),
    "_allgather_base_": ("output_tensor", "input_tensor"),
    "allgather_coalesced_": ("output_lists", "input_list"),
    "allgather_into_tensor_coalesced_": ("outputs", "inputs"),
    "reduce_scatter_": ("output_tensors", "input_tensors"),
    "_reduce_scatter_base_": ("output_tensor", "input_tensor"),
    "reduce_scatter_tensor_coalesced_": ("outputs", "inputs"),
    "gather_": ("output_tensors", "input_tensors"),
    "scatter_": ("output_tensors", "input_tensors"),
    "alltoall_": ("output_tensors", "input_tensors"),
    "alltoall_base_": ("output", "input"),
    "barrier": ("", ""),
    "monitored_barrier_": ("", ""),
    "send": ("", "tensors"),
    "recv_": ("tensors", ""),
    "recv_any_source_": ("tensors", ""),
}
FROM_ROOT = ("broadcast_", "scatter_")  # the inputs of other members are not read
BETWEEN_TWO = ("send", "recv_", "recv_any_source_")


@dataclass(frozen=True)
class Collective:
    """One call of an operator."""

    operator: str
    group: ProcessGroup
    arguments: dict[str, Any]  # by name

    @property
    def outputs(self) -> list[torch.Tensor]:
        name = OPERATORS[self.operator][0]
        return tensors_in(self.arguments[name]) if name else []

    @property
    def inputs(self) -> list[torch.Tensor]:
        name = OPERATORS[self.operator][1]
        return tensors_in(self.arguments[name]) if name else []

    def answer(self, work: Any) -> Any:
        """Return the result of the operator, with this Work (boxed) in it."""
        if self.operator == "monitored_barrier_":
            return None
        schema = getattr(torch.ops.c10d, self.operator).default._schema
        return (self.arguments[OPERATORS[self.operator][0]], work) if len(schema.returns) == 2 else work


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors_in(item)] if isinstance(value, list | tuple) else []


def ranks_of(group: ProcessGroup) -> list[int]:
    """Return the ranks of its members, in their order in it; none of a group that torch does not list, as one of a single member."""
    ranks = distributed_c10d._world.pg_group_ranks.get(group, {})
    return sorted(ranks, key=ranks.__getitem__)


def shapes(tensors: list[torch.Tensor]) -> list[tuple[str, list[int]]]:
    """Return the type and the shape of each."""
    return [(str(tensor.dtype).removeprefix("torch."), list(tensor.shape)) for tensor in tensors]


def below(arguments: Any) -> Any:
    """Return the keys of the kernel that does the work: that of the device of the first tensor, which is that of all tensors of a
    collective.
    """
    tensor = _first(arguments)
    return _keys("cpu" if tensor is None else tensor.device.type)


@functools.cache
def _keys(device: str) -> Any:
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, torch._C._dispatch_key_for_device(device)))


def _first(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, list | tuple):
        for item in value:
            if (found := _first(item)) is not None:
                return found
    return None


def work_of(result: Any) -> Work | None:
    """Return the Work in the result of an operator. None if there is nothing to wait for: NCCL returns no Work for a call that is not
    asynchronous, because its kernel is on the caller's stream.
    """
    work = result[-1] if isinstance(result, tuple) else result
    return Work.unbox(work) if isinstance(work, torch.ScriptObject) else None


class Kernels:
    """A client, which is called for every collective operator, above the kernel that does the work."""

    _stack: ClassVar[tuple[Kernels, ...]] = ()  # the last one is called first
    first: ClassVar[bool] = False  # it is called before all others, whenever they were installed

    def install(self) -> None:
        intercept()
        Kernels._stack = tuple(sorted((*Kernels._stack, self), key=lambda client: client.first))

    @property
    def installed(self) -> bool:
        return self in Kernels._stack

    def remove(self) -> None:
        if self.installed:
            Kernels._stack = tuple(kernels for kernels in Kernels._stack if kernels is not self)

    def wait(self, work: Work, wait: Callable[[], Any]) -> Any:
        """Handle that the script, or a library, waits for a Work in Python. Returns the result of `wait`, which waits."""
        return wait()

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        """Return the result of the operator, perhaps by `operate`, which does the work."""
        raise NotImplementedError


_library: Any = None
_own = threading.local()  # whether this thread waits for Understudy


def intercept() -> None:
    """Put the kernels into torch's dispatcher, once. On the main thread, before any other thread may issue a collective."""
    global _library
    if _library is None:
        _library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
        for name in OPERATORS:
            _library.impl(name, _kernel(name, getattr(torch.ops.c10d, name).default), "BackendSelect")
        patches.wrap(Work, "wait", _wait, "clients hear of waits")


def _wait(stock: Callable[..., Any], work: Work, *args: Any, **kwargs: Any) -> Any:
    if not Kernels._stack or getattr(_own, "waits", False):
        return stock(work, *args, **kwargs)

    def wait() -> Any:
        return stock(work, *args, **kwargs)

    for client in Kernels._stack:
        wait = _waiting(client, work, wait)
    return wait()


def _waiting(client: Kernels, work: Work, wait: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: client.wait(work, wait)


def wait_unseen(work: Work) -> None:
    """Wait for a Work without notice to the clients: it is not the script that waits."""
    _own.waits = True
    try:
        work.wait()
    finally:
        _own.waits = False


def _kernel(name: str, operator: Any) -> Callable[..., Any]:
    names, redispatch = [argument.name for argument in operator._schema.arguments], operator.redispatch

    def kernel(*args: Any, **kwargs: Any) -> Any:
        clients = Kernels._stack
        if not clients:
            return redispatch(below(args), *args, **kwargs)
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        collective = Collective(name, ProcessGroup.unbox(named["process_group"]), named)
        keys = below(list(named.values()))

        def operate() -> Any:
            return redispatch(keys, *args, **kwargs)

        for client in clients:
            operate = _through(client, collective, operate)
        return operate()

    return kernel


def _through(client: Kernels, collective: Collective, operate: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: client.call(collective, operate)
