"""What DDP and FSDP2 keep between calls, and how to bring it into a known state after a failed attempt.

DDP's reducer has a bucket layout. It starts with one made from the order of parameters and, before the second forward, changes
it once to the order in which gradients arrived, agreed by a broadcast. Layouts decide how gradients are added up, so a redo
must use the one that the failed attempt used, on the newcomer too:

- At every `begin` the runtime lets a pending rebuild happen (it would happen a moment later, in the forward).
- A rank that an abort kept from it does it alone, detached from its peers, before it recovers. It has the same order.
- A newcomer builds its reducer with the layout of a survivor.
- On every rank the reducer is then reset; it rebuilds once more after the next backward, with the same order again.
- With `static_graph` the reducer learns in its first backward how often each gradient arrives, and reduces only at its end, with
  one collective more. A newcomer has to learn that, so every rank begins anew there, with the same layout.

FSDP2 keeps gathered parameters, pending reductions and unsharded gradients of the failed attempt; `reset_iter_state` alone leaves
a stale gradient behind that would be added to the redo's.

Limit: a model whose order of gradients differs from step to step gets the layout of its first step back, not that of the step
in which DDP rebuilt; DDP itself requires a fixed order in that mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from understudy.worker.errors import UnderstudyError
from understudy.worker.state import State

Layout = list[list[int]]  # parameter numbers of each bucket


class Frameworks:
    """The framework state inside the registered modules."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._settled: set[int] = set()  # reducers (by id of their DDP) whose layout is the rebuilt one
        self._unsettled: list[DistributedDataParallel] | None = None  # those whose layout may still change; None: to be looked up
        self._begun = False  # whether the present attempt got past its `begin`

    def _data_parallel(self) -> list[DistributedDataParallel]:
        found: dict[int, DistributedDataParallel] = {}
        for module in self._state.modules.values():
            for part in module.modules():
                if isinstance(part, DistributedDataParallel):
                    found[id(part)] = part
        return list(found.values())

    def sharded(self) -> list[Any]:
        """The modules of FSDP2."""
        return [
            part
            for module in self._state.modules.values()
            for part in module.modules()
            if hasattr(part, "_get_fsdp_state") and hasattr(part, "reset_iter_state")
        ]

    def begin(self) -> None:
        """Inside the transaction: lets a pending rebuild of buckets happen now. DDPs that are made after the first one are not known."""
        self._begun = False
        if self._unsettled is None:
            self._unsettled = [module for module in self._data_parallel() if id(module) not in self._settled]
        for module in self._unsettled:
            if module.reducer._rebuild_buckets():
                self._settled.add(id(module))
                self._unsettled = None
        self._begun = True

    def after_abort(self, redo: bool, alone: Callable[[dist.ProcessGroup], None]) -> None:
        """Brings everything into the state in which the next attempt can start; groups have no peers at this time.

        `alone` gives a group a backend of one member, for the broadcast inside a rebuild.
        """
        self._unsettled = None
        for module in self._data_parallel():
            if id(module) not in self._settled and not (redo and self._begun):
                alone(module.process_group)
                if module.reducer._rebuild_buckets():
                    self._settled.add(id(module))
            module.reducer._reset_state()
            if module.static_graph and not redo:
                _rebuild(module, _buckets(module))
        if redo:
            for part in self.sharded():
                if part._get_fsdp_state()._is_root:  # None before the first forward: nothing to reset then
                    _reset_sharded(part)

    def layouts(self) -> list[Layout]:
        """Of each DDP, in order of registration: the layout in use, or [] for the one that it was built with."""
        found: list[Layout] = []
        for module in self._data_parallel():
            if id(module) not in self._settled:
                found.append([])
                continue
            found.append(_buckets(module))
        return found

    def apply_layouts(self, layouts: list[Layout]) -> None:
        """On a newcomer, still detached: builds the reducers as the survivors' are."""
        modules = self._data_parallel()
        if len(modules) != len(layouts):
            raise UnderstudyError(
                f"this newcomer registered {len(modules)} DistributedDataParallel modules, the survivors {len(layouts)}: "
                "the script does not set up the same way twice"
            )
        for module, layout in zip(modules, layouts, strict=True):
            if layout:
                _rebuild(module, layout)
                self._settled.add(id(module))


def _buckets(module: DistributedDataParallel) -> Layout:
    numbers = {id(p): number for number, p in enumerate(module._build_params_for_reducer()[0])}  # type: ignore[no-untyped-call]
    with _Untouched():  # type: ignore[no-untyped-call]
        buckets = module.reducer._get_zeros_like_grad_buckets()
    return [[numbers[id(p)] for p in bucket.parameters()] for bucket in buckets]


class _Untouched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Torch tells a reducer's buckets only together with zeros of their size, which nobody here reads: as large as the model, they would
    cost survivors and newcomer tens of milliseconds for each hundred megabytes. Memory that is not written to costs nothing.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.zeros_like.default:
            return torch.empty_like(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _rebuild(module: DistributedDataParallel, layout: Layout) -> None:
    """A new reducer with this layout, in the state in which the constructor left the first one."""
    parameters, expect_sparse = module._build_params_for_reducer()  # type: ignore[no-untyped-call]
    names = module._build_debug_param_to_name_mapping(parameters)  # type: ignore[no-untyped-call]
    module.reducer._remove_autograd_hooks()
    given = list(reversed(layout)), list(reversed([int(module.bucket_bytes_cap)] * len(layout)))
    log = dist.Logger.set_construction_data_and_log  # type: ignore[attr-defined]

    def log_if_possible(*arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # torch has no name for the number of a backend that was replaced
            log(*arguments)

    with (
        mock.patch.object(dist, "_compute_bucket_assignment_by_size", lambda *_: given),
        mock.patch.object(dist.Logger, "set_construction_data_and_log", log_if_possible),  # type: ignore[attr-defined]
    ):
        module._ddp_init_helper(parameters, expect_sparse, names, module.static_graph)  # type: ignore[no-untyped-call]
    if module.static_graph:
        module._static_graph_delay_allreduce_enqueued = False
        module.reducer._set_static_graph()
        assert module.logger is not None
        module.logger._set_static_graph()
    for hook, state in module._comm_hooks:
        dist._register_comm_hook(module.reducer, state, hook)  # type: ignore[attr-defined]


def _reset_sharded(root: Any) -> None:
    context = root._get_fsdp_state()._state_ctx
    groups = []
    for state in context.all_states:
        many = getattr(state, "_fsdp_param_groups", None)
        one = getattr(state, "_fsdp_param_group", None)
        groups += list(many) if many else [one] if one is not None else []
    for group in groups:
        group._all_gather_result = None
    root.reset_iter_state()
    for group in groups:
        for parameter in group.fsdp_params:
            parameter.unsharded_accumulated_grad = None
            unsharded = getattr(parameter, "_unsharded_param", None)
            if isinstance(unsharded, torch.Tensor):
                unsharded.grad = None
