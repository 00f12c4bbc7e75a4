"""What a script's set-up hears from its peers: recorded while it happens, replayed to a newcomer.

A newcomer runs the script's set-up alone, long after its peers, and every collective in it must give what the lost rank was
given. Both sides work by a kernel in front of the `c10d` operators (every collective, from Python, C++ or functional
collectives, passes the dispatcher): the recorder calls the operator and notes its output, the replayer writes the noted
output instead of calling it. At the first transaction the kernels are taken away again, so training has nothing in the way.

Small outputs are kept whole. Of a large one only its digest is kept and the newcomer keeps its own value: right for
parameters, whose content comes over later; for anything else the newcomer compares the digest and reports a difference.

Limit: operations that are waited for later (`async_op=True`) are waited for at once while recording, except point-to-point
receives, whose value is read at the next collective.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import ProcessGroup, Work

from understudy.worker.codec import decode, encode
from understudy.worker.digests import digest
from understudy.worker.errors import Misuse

WHOLE = 256 << 10  # bytes of one output up to which it is kept whole
_DIFFERENT = "the script does not set up the same way twice"
BUDGET = 16 << 20  # bytes of all outputs kept whole

# operator -> the arguments that it writes into
_OUTPUTS = {
    "allreduce_": "tensors",
    "allreduce_coalesced_": "tensors",
    "broadcast_": "tensors",
    "reduce_": "tensors",
    "allgather_": "output_tensors",
    "_allgather_base_": "output_tensor",
    "allgather_coalesced_": "output_lists",
    "allgather_into_tensor_coalesced_": "outputs",
    "reduce_scatter_": "output_tensors",
    "_reduce_scatter_base_": "output_tensor",
    "reduce_scatter_tensor_coalesced_": "outputs",
    "gather_": "output_tensors",
    "scatter_": "output_tensors",
    "alltoall_": "output_tensors",
    "alltoall_base_": "output",
    "barrier": "",
    "monitored_barrier_": "",
    "send": "",
    "recv_": "tensors",
    "recv_any_source_": "tensors",
}


def _below(arguments: Any) -> Any:
    """The keys of the kernel that does the work.

    Ours stands at BackendSelect, which is part of every dispatch (with or without autograd, in inference mode, from C++) and which
    no c10d operator uses.
    """
    cuda = any(tensor.is_cuda for tensor in _tensors(arguments))
    return torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA if cuda else torch._C.DispatchKey.CPU)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, list | tuple) else []


def _describe(tensors: list[torch.Tensor]) -> list[Any]:
    return [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]


class Kernels:
    """A kernel in front of every collective operator, above the one that does the work."""

    def __init__(self) -> None:
        self._library: Any = None

    def install(self) -> None:
        self._library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
        for name in _OUTPUTS:
            operator = getattr(torch.ops.c10d, name).default
            kernel = self._kernel(name, operator)
            self._library.impl(name, kernel, "BackendSelect")

    def remove(self) -> None:
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def _kernel(self, name: str, operator: Any) -> Callable[..., Any]:
        names = [argument.name for argument in operator._schema.arguments]

        def kernel(*args: Any, **kwargs: Any) -> Any:
            named = {**dict(zip(names, args, strict=False)), **kwargs}
            group = ProcessGroup.unbox(named["process_group"])
            outputs = named[_OUTPUTS[name]] if _OUTPUTS[name] else []
            keys = _below(list(named.values()))
            return self.call(name, group.group_name, outputs, lambda: operator.redispatch(keys, *args, **kwargs))

        return kernel

    def call(self, name: str, group: str, outputs: Any, operate: Callable[[], Any]) -> Any:
        raise NotImplementedError


class Recorder(Kernels):
    """Notes the output of every collective of this rank's set-up."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[dict[str, Any]] = []
        self._late: list[tuple[dict[str, Any], list[torch.Tensor]]] = []
        self._kept = 0

    def call(self, name: str, group: str, outputs: Any, operate: Callable[[], Any]) -> Any:
        result = operate()
        tensors = _tensors(outputs)
        entry: dict[str, Any] = {"operator": name, "group": group, "outputs": _describe(tensors)}
        self.entries.append(entry)
        if name in ("recv_", "recv_any_source_", "send"):
            self._late.append((entry, tensors))
            return result
        work = result[-1] if isinstance(result, tuple) else result
        if isinstance(work, torch.ScriptObject):
            Work.unbox(work).wait()
        self._settle()
        self._note(entry, tensors)
        return result

    def _settle(self) -> None:
        late, self._late = self._late, []
        for entry, tensors in late:
            self._note(entry, tensors)

    def _note(self, entry: dict[str, Any], tensors: list[torch.Tensor]) -> None:
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if size <= WHOLE and self._kept + size <= BUDGET:
            self._kept += size
            entry["whole"] = [tensor.detach().cpu().clone() for tensor in tensors]
        else:
            entry["digests"] = [digest(tensor.detach().contiguous()) for tensor in tensors]

    def finish(self) -> bytes:
        """Takes the kernels away and gives the record."""
        self._settle()
        self.remove()
        return encode(self.entries)


class Replayer(Kernels):
    """Gives a newcomer, at every collective of its set-up, what the lost rank was given."""

    def __init__(self, record: bytes, rank: int) -> None:
        super().__init__()
        self._entries: list[dict[str, Any]] = decode(record)
        self._rank = rank
        self._next = 0
        self._over = False
        self._alone = ProcessGroup(HashStore(), 0, 1)
        self._different: list[tuple[weakref.ref[torch.Tensor], str]] = []

    def install(self) -> None:
        """Call only after the groups' own classes are in place."""
        backend = dist.ProcessGroupGloo(HashStore(), 0, 1)  # type: ignore[call-arg]
        self._backend = backend
        self._alone._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, backend)
        super().install()

    def call(self, name: str, group: str, outputs: Any, operate: Callable[[], Any]) -> Any:
        if self._over:
            raise Misuse(
                f"rank {self._rank}: {name} on group {group!r} outside any transaction, on a newcomer that is still on its way: wrap it in "
                "@job.section"
            )
        tensors = _tensors(outputs)
        number, self._next = self._next, self._next + 1
        here = {"operator": name, "group": group, "outputs": _describe(tensors)}
        if number >= len(self._entries):
            raise Misuse(
                f"rank {self._rank}: this newcomer calls {name} on group {group!r} as collective number {number} of its set-up, but the "
                f"lost rank had issued only {len(self._entries)} before its first transaction: {_DIFFERENT}"
            )
        entry = self._entries[number]
        there = {key: entry[key] for key in here}
        if here != there:
            raise Misuse(
                f"rank {self._rank}: collective number {number} of this newcomer's set-up is {here}, the lost rank's was {there}: "
                "the script does not set up the same way twice"
            )
        with torch.no_grad():
            if "whole" in entry:
                for tensor, value in zip(tensors, entry["whole"], strict=True):
                    tensor.detach().copy_(value)
            else:
                for tensor, expected in zip(tensors, entry["digests"], strict=True):
                    if digest(tensor.detach().contiguous()) != expected:
                        text = f"{name} on group {group!r}, number {number}, {tensor.dtype} {tuple(tensor.shape)}"
                        self._different.append((weakref.ref(tensor), text))
        return self._result(name, outputs)

    def _result(self, name: str, outputs: Any) -> Any:
        token = torch.empty(1)
        work = torch.ops.c10d.barrier.default.redispatch(_below(token), token, self._alone.boxed(), [])
        if name in ("monitored_barrier_",):
            return None
        schema = getattr(torch.ops.c10d, name).default._schema
        return (outputs, work) if len(schema.returns) == 2 else work

    def finish(self) -> None:
        """The set-up is over: until `remove`, which the arrival calls, every collective is refused."""
        self._over = True
        if self._next < len(self._entries):
            entry = self._entries[self._next]
            raise Misuse(
                f"rank {self._rank}: this newcomer's set-up issued {self._next} collectives, the lost rank's {len(self._entries)}; the "
                f"first one missing is {entry['operator']} on group {entry['group']!r}: {_DIFFERENT}"
            )

    def differences(self, storages: set[int]) -> list[str]:
        """Large results that could not be replayed and are in none of the registered `storages` (addresses), where known."""
        found = []
        for reference, text in self._different:
            tensor = reference()
            if tensor is not None and tensor.untyped_storage().data_ptr() not in storages:
                found.append(text)
        return found
