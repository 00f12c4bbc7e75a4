"""DistributedDataParallel: its state that steers its collectives is read from the object, and set on it.

Every DDP is found where it is made. Its reducer has a bucket layout, which decides how gradients are added up. It starts with one made
from the order of parameters and changes it once, in the forward that follows the first complete backward, to the order in which
gradients arrived there; the group's first rank broadcasts its own. With `find_unused_parameters` (and no static graph) it never
changes. Torch notes on the module when it has (`_has_rebuilt_buckets`).

A reducer can be given any layout, as one that was rebuilt or as one that was not: it is made to rebuild, with a process group in which
the first rank broadcasts that layout. Only a static graph needs a new reducer: it counts in its first backward how often each gradient
arrives, and reduces only at its end, with one collective more. A newcomer has to count, so every rank begins again there, with the same
layout.

Limits: a loss between a static graph's first backward and the rebuild that its second one brings ends the job, because counting again
would delay that rebuild, and the bits would differ. `GradBucket.parameters()`, which only comm hooks read, is cached by torch from the
first rebuild on.

A pending rebuild happens before the vote. One in the middle of a transaction, as with two forwards in the first step, happens there, and a
redo starts from the layout with which the attempt began. Whether the next forward broadcasts buffers and the next backward reduces is
restored as well, because a forward without gradients, as in an evaluation, changes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from understudy.messages import frameworks
from understudy.worker import patches
from understudy.worker.errors import UnderstudyError, UsageError
from understudy.worker.frameworks import comm_hooks
from understudy.worker.frameworks.base import Described, FrameworkAdapter, Memberships, Registered, SharedObject, described_by_users

Layout = list[list[int]]  # parameter numbers of each bucket
STEERING = "buckets and synchronization"  # the fact that a newcomer adopts
BUCKETS = "buckets"  # the part of it that lasts

_made: list[DistributedDataParallel] = []


@dataclass(frozen=True)
class Steering:
    """What a DDP does next, apart from the options of its constructor."""

    layout: Layout
    rebuilt: bool  # whether the layout is final
    backward_sync: bool  # whether the next backward reduces
    forward_sync: bool  # whether the next forward broadcasts buffers, if there are any: not after one without gradients
    counted: bool = False  # of a static graph: whether it has had its first backward

    def packed(self) -> list[Any]:
        return [self.layout, self.rebuilt, self.backward_sync, self.forward_sync, self.counted]

    @classmethod
    def unpacked(cls, data: Any) -> Steering:
        """Decode. Raises `ValueError` for anything but the result of `packed`."""
        match data:
            case [[*layout], bool(rebuilt), bool(backward_sync), bool(forward_sync), bool(counted)] if all(
                isinstance(bucket, list) and all(type(number) is int for number in bucket) for bucket in layout
            ):
                return cls(layout, rebuilt, backward_sync, forward_sync, counted)
        raise ValueError(frameworks.NOT_A_LAYOUT(found=repr(data)[:200]))


class Ddp(FrameworkAdapter):
    passing: frozenset[str] = frozenset({STEERING})

    def __init__(self, registered: Registered, groups: Memberships) -> None:
        super().__init__(registered, groups)
        self._known: list[DistributedDataParallel] | None = None  # no more are made once this is read
        self._layouts: dict[int, tuple[bool, Layout]] = {}  # by id of the DDP: whether it was final when it was read, and the layout
        self._begun: list[Steering] = []  # of each DDP, as the present attempt found it

    @staticmethod
    def keeps_attributes(part: torch.nn.Module) -> bool:
        return isinstance(part, DistributedDataParallel)

    def watch(self, training: Callable[[], bool]) -> None:
        """Note every DDP that is made, by a public hook of torch.nn. Refuses `join`."""

        def made(module: torch.nn.Module, name: str, submodule: torch.nn.Module | None) -> None:
            if isinstance(module, DistributedDataParallel) and name == "module":
                if training():
                    raise UsageError(frameworks.DDP_LATE(module=type(submodule).__qualname__))
                _made.append(module)

        def refuse_join(make: Callable[..., None], join: Join, *args: Any, **kwargs: Any) -> None:
            make(join, *args, **kwargs)
            if join._enable:
                raise UsageError(frameworks.UNEVEN_INPUTS())

        torch.nn.modules.module.register_module_module_registration_hook(made)
        patches.wrap(Join, "__init__", refuse_join, "uneven inputs are refused")
        comm_hooks.watch()

    def uncovered(self) -> str:
        known = {id(part) for module in self.registered.modules.values() for part in module.modules()}
        loose = [type(one.module).__qualname__ for one in list(_made) if id(one) not in known and id(one.module) not in known]
        if loose:
            return frameworks.DDP_NOT_REGISTERED(modules=", ".join(loose))
        things = [*self.registered.values.values(), *self.registered.tensors.values(), *self.registered.optimizers.values()]
        registered = {id(thing) for thing in things}
        for wrapper in self._wrappers():
            for hook in comm_hooks.hooks_of(wrapper.reducer):
                if kept := comm_hooks.keeps(hook, registered):
                    return frameworks.HOOK_KEEPS(module=type(wrapper.module).__qualname__, hook=hook.name, kept=kept)
        return ""

    def _wrappers(self) -> list[DistributedDataParallel]:
        """Return every DDP that was made, and copies of them that are registered; on all ranks in the same order."""
        found = {id(wrapper): wrapper for wrapper in _made}
        for module in self.registered.modules.values():
            for part in module.modules():
                if isinstance(part, DistributedDataParallel):
                    found.setdefault(id(part), part)
        return [wrapper for wrapper in found.values() if hasattr(wrapper, "reducer")]

    def _modules(self) -> list[DistributedDataParallel]:
        if self._known is None:
            self._known = self._wrappers()
        return self._known

    def settle(self) -> None:
        for module in self._modules():
            if not settled(module):
                settle(module)

    def begin(self) -> None:
        """Note the layouts. A layout is read only if it may differ from that of the last begin."""
        self._begun = []
        for module in self._modules():
            final = settled(module)
            known = self._layouts.get(id(module))
            if known is None or known[0] != final:
                known = self._layouts[id(module)] = final, layout_of(module)
            self._begun.append(steering_of(module, known[1]))

    def restore(self) -> None:
        """Restore the DDPs. A gradient that was a view of a bucket at begin becomes one of the present bucket: DDP divides a view by the
        number of ranks, and multiplies any other gradient by the inverse, which gives other bits.
        """
        for module, steering in zip(self._modules(), self._begun, strict=False):  # none, if the attempt did not reach its begin
            put(module, steering)

    def meet_newcomers(self) -> None:
        self._layouts.clear()
        for module in self._modules():
            if not settled(module):
                settle_alone(module)
            if module.static_graph:
                count_again(module)

    def redoes_otherwise(self) -> bool:
        return any(module.static_graph for module in self._modules())

    def not_drilled(self) -> str:
        if any(module.static_graph for module in self._modules()):
            return frameworks.STATIC_NOT_DRILLED()
        if not all(map(settled, self._modules())):
            return frameworks.NOT_SETTLED()
        if hook := next((hook for module in self._modules() for hook in comm_hooks.hooks_of(module.reducer) if hook.builtin), None):
            return frameworks.BUILTIN_HOOK(hook=hook.name)
        return ""

    def described(self) -> Described:
        found: Described = {}
        members = {id(group): (name, ranks) for group, name, ranks in self.groups.members()}
        counts: dict[str, int] = {}
        for module in self._modules():
            name, ranks = members.get(id(module.process_group), ("", []))
            counts[name] = counts.get(name, 0) + 1
            steering = read(module)
            found[f"ddp/{name}/{counts[name]}"] = SharedObject(
                tuple(ranks),
                f"DistributedDataParallel over {type(module.module).__qualname__} (number {counts[name]} of process group {name})",
                {
                    **options(module),
                    "communication hooks": [hook.name for hook in comm_hooks.hooks_of(module.reducer)],
                    BUCKETS: [steering.layout, steering.rebuilt],
                    STEERING: steering.packed(),
                },
            )
        return found

    def adopt(self, reports: Mapping[int, Described]) -> None:
        self._layouts.clear()
        for module, (name, mine) in zip(self._modules(), self.described().items(), strict=True):
            if (theirs := described_by_users(reports, name, mine.ranks)) is not None:
                put(module, Steering.unpacked(theirs.facts[STEERING]), from_scratch=True)


def settled(module: DistributedDataParallel) -> bool:
    """Return whether the layout cannot change any more."""
    return module._has_rebuilt_buckets or not _may_rebuild(module)


def _may_rebuild(module: DistributedDataParallel) -> bool:
    return module.static_graph or not module.find_unused_parameters


def settle(module: DistributedDataParallel) -> None:
    """Let a pending rebuild happen now; the next forward would do it. All ranks of the group call it."""
    try:
        rebuilt = module.reducer._rebuild_buckets()
    except RuntimeError as error:
        if "Expected to have finished reduction" not in str(error):
            raise
        return  # parameters got no gradient: the next forward reports that to the user, in more words
    if rebuilt:
        module._has_rebuilt_buckets = True


def read(module: DistributedDataParallel) -> Steering:
    """Read the present state, in no forward or backward."""
    return steering_of(module, layout_of(module))


def steering_of(module: DistributedDataParallel, layout: Layout) -> Steering:
    """Return the same with a layout that is known."""
    counted = bool(module.static_graph and module._static_graph_delay_allreduce_enqueued)
    # A rank may well have had a forward alone, as for an evaluation: without buffers that means nothing.
    broadcasts = module.broadcast_buffers and len(module.modules_buffers) > 0
    forward_sync = module.require_forward_param_sync or not broadcasts
    return Steering(layout, settled(module), module.require_backward_grad_sync, forward_sync, counted)


def put(module: DistributedDataParallel, steering: Steering, from_scratch: bool = False) -> None:
    """Set the state, whatever a failed attempt has left. `from_scratch`: a static graph counts again, and gradients become views of
    buckets where DDP makes them so, which is when it makes buckets.
    """
    if from_scratch and (module.static_graph or (module.gradient_as_bucket_view and not _may_rebuild(module))):
        _make_reducer(module, steering.layout)
    module.reducer._reset_state()
    module._has_rebuilt_buckets = False
    if _may_rebuild(module):
        with _with_layout(module, steering.layout):
            module.reducer._push_all_rebuilt_params()
            module.reducer._rebuild_buckets()
        if steering.rebuilt:
            module._has_rebuilt_buckets = True
        else:
            module.reducer._reset_state()
    module.require_backward_grad_sync = steering.backward_sync
    module.require_forward_param_sync = steering.forward_sync
    if module.static_graph:
        module._static_graph_delay_allreduce_enqueued = steering.counted and not from_scratch


def count_again(module: DistributedDataParallel) -> None:
    """Begin to count again, on a survivor, where a newcomer will have to count how often gradients arrive. Raises `UnderstudyError` if
    that is impossible.
    """
    steering = read(module)
    if steering.counted and not steering.rebuilt:
        raise UnderstudyError(frameworks.STATIC_LOST(module=type(module.module).__qualname__))
    put(module, steering, from_scratch=True)


def settle_alone(module: DistributedDataParallel) -> None:
    """Settle as `settle`, without peers: for a rebuild that was pending outside of all transactions. The order is this rank's own."""
    with _with_layout(module, None):
        settle(module)


def options(module: DistributedDataParallel) -> dict[str, Any]:
    """Return the options of its constructor, and which parameters it reduces."""
    return {
        "find_unused_parameters": bool(module.find_unused_parameters),
        "static_graph": bool(module.static_graph),
        "bucket_bytes_cap": int(module.bucket_bytes_cap),
        "gradient_as_bucket_view": bool(module.gradient_as_bucket_view),
        "broadcast_buffers": bool(module.broadcast_buffers),
        "parameters that require gradients": [name for name, p in module.module.named_parameters() if p.requires_grad],
    }


def _parameters(module: DistributedDataParallel, present: set[int]) -> list[torch.nn.Parameter]:
    """Return the reducer's parameters, in its order: not those that require gradients now, but those that did when it was made."""
    found: dict[int, torch.nn.Parameter] = {}
    for part in module.module.modules():
        for parameter in part.parameters(recurse=False):
            if id(parameter) in present:
                found.setdefault(id(parameter), parameter)
    return list(found.values())


def _in_buckets(module: DistributedDataParallel) -> list[list[torch.Tensor]]:
    with _Untouched():  # type: ignore[no-untyped-call]
        return [bucket.parameters() for bucket in module.reducer._get_zeros_like_grad_buckets()]


def layout_of(module: DistributedDataParallel) -> Layout:
    """Return the layout in use."""
    buckets = _in_buckets(module)
    parameters = _parameters(module, {id(p) for bucket in buckets for p in bucket})
    numbers = {id(p): number for number, p in enumerate(parameters)}
    return [[numbers[id(p)] for p in bucket] for bucket in buckets]


class _Untouched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Leaves zeros untouched: torch sets a reducer's buckets only together with zeros of their size, which are never read here. As large
    as the model, they would cost survivors and newcomer tens of milliseconds for each hundred megabytes. Memory that is not written to
    costs nothing.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.zeros_like.default:
            return torch.empty_like(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class _Teller(dist.ProcessGroup):
    """A group of one, in which a rebuild receives `layout` as if from the first rank; or its own, if there is none."""

    def __init__(self, layout: Layout | None) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]
        self._tells: list[list[int]] = []
        if layout is not None:
            self._tells = [[number for bucket in layout for number in bucket] + [len(layout)], [len(bucket) for bucket in layout]]

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Any:  # type: ignore[override]
        if self._tells:
            tensors[0].copy_(torch.tensor(self._tells.pop(0), dtype=tensors[0].dtype))
        done: Future[list[torch.Tensor]] = Future()
        done.set_result(tensors)
        c10d: Any = torch._C._distributed_c10d
        return c10d._create_work_from_future(done)

    def getBackendName(self) -> str:
        return "understudy"


@contextlib.contextmanager
def _with_layout(module: DistributedDataParallel, layout: Layout | None) -> Iterator[None]:
    teller = _Teller(layout)
    module.reducer._update_process_group(teller)
    try:
        yield
    finally:
        module.reducer._update_process_group(module.process_group)


def _make_reducer(module: DistributedDataParallel, layout: Layout) -> None:
    """Return a new reducer with this layout, in the state in which the constructor left the first one."""
    parameters = _parameters(module, {id(p) for bucket in _in_buckets(module) for p in bucket})
    names = module._build_debug_param_to_name_mapping(parameters)  # type: ignore[no-untyped-call]
    old = module.reducer
    old._remove_autograd_hooks()
    given = list(reversed(layout)), list(reversed([int(module.bucket_bytes_cap)] * len(layout)))
    log = dist.Logger.set_construction_data_and_log  # type: ignore[attr-defined]

    def log_if_possible(*arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # torch has no name for the number of a backend that was replaced
            log(*arguments)

    with (
        _replaced(dist, "_compute_bucket_assignment_by_size", lambda *_: given),
        _replaced(dist.Logger, "set_construction_data_and_log", log_if_possible),  # type: ignore[attr-defined]
    ):
        module._ddp_init_helper(parameters, [False] * len(parameters), names, module.static_graph)  # type: ignore[no-untyped-call]
    if module.static_graph:
        module._static_graph_delay_allreduce_enqueued = False
        module.reducer._set_static_graph()
        assert module.logger is not None
        module.logger._set_static_graph()
    comm_hooks.register_again(old, module.reducer)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    """Replace `name` of `owner`, a module or a class, in its own dictionary, by `other`."""
    patch = patches.put(owner, name, other, "DDP is made again as the others have it")
    try:
        yield
    finally:
        patch.remove()
