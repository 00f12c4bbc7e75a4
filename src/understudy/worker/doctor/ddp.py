"""DistributedDataParallel: its reducer and the attributes that steer it."""

from __future__ import annotations

import weakref
from typing import Any

from understudy.worker.doctor.base import Probe, expect, expect_signature, has, module, replaced, world

WITHOUT = "jobs with DistributedDataParallel cannot recover"
USED_BY = ("frameworks.ddp",)


def _wrapped(**options: Any) -> Any:
    """Yield a DDP with three parameters in a bucket each, as soon as they are rebuilt. Only inside `world`."""
    torch = module("torch")
    parts = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 1, bias=False))
    return torch.nn.parallel.DistributedDataParallel(parts, bucket_cap_mb=1e-6, **options)


def _trained(model: Any) -> None:
    model(module("torch").ones(1, 2)).sum().backward()


def _layout(model: Any) -> list[list[int]]:
    """Return the numbers of the parameters in each bucket."""
    numbers = {id(parameter): number for number, parameter in enumerate(model.module.parameters())}
    return [[numbers[id(p)] for p in bucket.parameters()] for bucket in model.reducer._get_zeros_like_grad_buckets()]


def _made() -> None:
    seen = list[Any]()
    kind = module("torch").nn.parallel.DistributedDataParallel

    def noted(owner: Any, name: str, part: Any) -> None:
        if isinstance(owner, kind) and name == "module":
            seen.append(owner)

    handle = module("torch.nn.modules.module").register_module_module_registration_hook(noted)
    try:
        with world():
            model = _wrapped()
    finally:
        handle.remove()
    expect(seen == [model], "a DDP registers what it wraps under the name module, which a hook for all modules sees")


def _switches() -> None:
    with world():
        model = _wrapped()
        names = ("require_backward_grad_sync", "require_forward_param_sync", "broadcast_buffers", "modules_buffers", "static_graph")
        has(model, *names, "find_unused_parameters", "bucket_bytes_cap", "gradient_as_bucket_view", "process_group", "logger")
        before = model._has_rebuilt_buckets
        _trained(model)
        expect(not model.require_forward_param_sync or model.require_backward_grad_sync, "a backward that reduces sets both switches")
        _trained(model)
        expect((before, model._has_rebuilt_buckets) == (False, True), "_has_rebuilt_buckets shows that the forward has rebuilt them")
        with model.no_sync():
            expect(not model.require_backward_grad_sync, "no_sync is require_backward_grad_sync")


def _reducer() -> None:
    """Try that a layout which a group of one broadcasts is adopted, and that a reset lets it be rebuilt again."""
    torch, dist = module("torch"), module("torch.distributed")
    wanted = [[1], [0, 2]]
    group: Any = dist.ProcessGroup

    class Teller(group):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(0, 1)
            self.sizes = [[1, 0, 2, 2], [1, 2]]

        def broadcast(self, tensors: Any, options: Any) -> Any:
            tensors[0].copy_(torch.tensor(self.sizes.pop(0), dtype=tensors[0].dtype))
            future = torch.futures.Future()
            future.set_result(tensors)
            return torch._C._distributed_c10d._create_work_from_future(future)

        def getBackendName(self) -> str:
            return "understudy"

    with world():
        model = _wrapped()
        first = _layout(model)
        expect(
            sorted(number for bucket in first for number in bucket) == [0, 1, 2],
            "_get_zeros_like_grad_buckets has the parameters of each bucket",
        )
        model.reducer._reset_state()
        teller = Teller()  # C++ keeps only its own part of it
        model.reducer._update_process_group(teller)
        try:
            model.reducer._push_all_rebuilt_params()
            expect(model.reducer._rebuild_buckets(), "_rebuild_buckets rebuilds when it has all parameters")
        finally:
            model.reducer._update_process_group(model.process_group)
        expect(_layout(model) == wanted, "a reducer adopts the buckets that the first rank sends in two broadcasts")
        model._has_rebuilt_buckets = True
        _trained(model)
        expect(_layout(model) == wanted, "a layout that was adopted stays")


def _zeros() -> None:
    """Try that tensors made in C++ pass a dispatch mode, where zeros as large as the model are left out."""
    torch, seen = module("torch"), list[Any]()

    class Noted(module("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with world():
        model = _wrapped()
        with Noted():
            model.reducer._get_zeros_like_grad_buckets()
        expect(torch.ops.aten.zeros_like.default in seen, "a dispatch mode sees the zeros that C++ makes for buckets")


def _new_reducer() -> None:
    dist = module("torch.distributed")
    with world():
        model = _wrapped(static_graph=True)
        expect(model._static_graph_delay_allreduce_enqueued is False, "a static graph notes whether it has had its first backward")
        expect_signature(model._ddp_init_helper, "parameters", "expect_sparse_gradient", "param_to_name_mapping", "static_graph")
        has(model.logger, "_set_static_graph")
        parameters = list(model.module.parameters())
        names = model._build_debug_param_to_name_mapping(parameters)
        old, logged, asked = model.reducer, list[Any](), list[Any]()
        old._remove_autograd_hooks()
        log = dist.Logger.set_construction_data_and_log

        def noted(*arguments: Any) -> None:
            logged.append(arguments)
            log(*arguments)

        def given(*arguments: Any) -> Any:
            asked.append(arguments)
            return [[2], [1, 0]], [1, 1]

        with (
            replaced(dist, "_compute_bucket_assignment_by_size", given),
            replaced(dist.Logger, "set_construction_data_and_log", noted),
        ):
            model._ddp_init_helper(parameters, [False] * len(parameters), names, True)
        expect(model.reducer is not old, "_ddp_init_helper makes a new reducer")
        expect(len(asked) == len(logged) == 1, "its buckets and its log come from functions that are looked up in torch.distributed")
        model.reducer._set_static_graph()
        model.logger._set_static_graph()
        expect(_layout(model) == [[1, 0], [2]], "a reducer has the buckets that it is made with, last first")
        _trained(model)
        expect(model._static_graph_delay_allreduce_enqueued, "the first backward of a static graph is noted")


def _hooks() -> None:
    dist, c, seen = module("torch.distributed"), module("torch._C._distributed_c10d"), list[Any]()
    python, builtin = dist._register_comm_hook, dist._register_builtin_comm_hook

    def noted(reducer: Any, state: Any, hook: Any) -> None:
        seen.append(hook)
        python(reducer, state, hook)

    def noted_builtin(reducer: Any, kind: Any) -> None:
        seen.append(kind)
        builtin(reducer, kind)

    kind, hook = c.BuiltinCommHookType.ALLREDUCE, module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks").allreduce_hook
    with replaced(dist, "_register_comm_hook", noted), replaced(dist, "_register_builtin_comm_hook", noted_builtin), world():
        model, other = _wrapped(), _wrapped()
        model.register_comm_hook(None, hook)
        other._register_builtin_comm_hook(kind)
        expect(seen == [hook, kind], "DDP registers hooks by two functions that it looks up in torch.distributed")
        weakref.ref(model.reducer)


def _join() -> None:
    torch, join = module("torch"), module("torch.distributed.algorithms.join").Join
    with world():
        inside = join([_wrapped()], enable=True)
        expect(inside._enable is True, "join() notes whether it is on")
        model, made = _wrapped(), list[Any]()
        make = join.__init__

        def noted(self: Any, *args: Any, **kwargs: Any) -> None:
            made.append(self)
            make(self, *args, **kwargs)

        with replaced(join, "__init__", noted), model.join(enable=False):
            model(torch.ones(1, 2))
        expect(len(made) == 1, "the join() of DDP makes a Join")


DDP = (
    Probe("ddp-made", "every DDP is noted when it is made", USED_BY, (), _made, WITHOUT),
    Probe(
        "ddp-switches",
        "what a DDP does next: whether it reduces, broadcasts buffers, rebuilds",
        USED_BY,
        ("_has_rebuilt_buckets",),
        _switches,
        WITHOUT,
    ),
    Probe(
        "ddp-reducer",
        "a reducer is given the buckets of the others",
        USED_BY,
        (
            *("_reset_state", "_rebuild_buckets", "_push_all_rebuilt_params", "_update_process_group"),
            *("_get_zeros_like_grad_buckets", "_create_work_from_future", "_C", "_distributed_c10d"),
        ),
        _reducer,
        WITHOUT,
    ),
    Probe("dispatch-mode", "reading the buckets costs no memory of the model's size", USED_BY, ("_python_dispatch",), _zeros, WITHOUT),
    Probe(
        "ddp-new-reducer",
        "a static graph counts again where a newcomer has to",
        USED_BY,
        (
            *("_ddp_init_helper", "_compute_bucket_assignment_by_size", "_build_debug_param_to_name_mapping", "_remove_autograd_hooks"),
            *("_static_graph_delay_allreduce_enqueued", "_set_static_graph"),
        ),
        _new_reducer,
        WITHOUT,
    ),
    Probe(
        "ddp-hooks",
        "which communication hooks a reducer has",
        ("frameworks.comm_hooks",),
        ("_register_comm_hook", "_register_builtin_comm_hook", "_distributed_c10d"),
        _hooks,
        WITHOUT,
    ),
    Probe("ddp-join", "uneven inputs are refused", USED_BY, ("_enable",), _join, WITHOUT),
)
