"""Collectives on their way through torch's dispatcher, Works, loaders, and functions that save files."""

from __future__ import annotations

import _thread
import inspect
import io
import threading
from pathlib import Path
from typing import Any

from understudy.worker.doctor.base import NotHere, Probe, expect, has, module, replaced, world


def _kernels() -> None:
    """Install our kernel before each operator that `collectives.interception` knows, and call one of them."""
    torch, group_class = module("torch"), module("torch.distributed").ProcessGroup
    operators = module("understudy.worker.collectives.interception").OPERATORS
    for name, (outputs, inputs) in operators.items():
        named = {argument.name for argument in getattr(torch.ops.c10d, name).default._schema.arguments}
        expect(
            {"process_group", outputs, inputs} - {""} <= named, f"c10d::{name} takes process_group, {outputs}, {inputs} (it takes {named})"
        )
    operator, calls = torch.ops.c10d.allreduce_.default, list[Any]()

    def kernel(*args: Any) -> Any:
        calls.append(args)
        return operator.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *args)

    with world() as group:
        library = torch.library.Library("c10d", "IMPL")
        try:
            library.impl("allreduce_", kernel, "BackendSelect")
            torch.distributed.all_reduce(torch.ones(1))
        finally:
            library._destroy()
        torch.distributed.all_reduce(torch.ones(1))
        expect(len(calls) == 1, "a kernel at BackendSelect sees each collective until it is taken away again")
        values = dict(zip([argument.name for argument in operator._schema.arguments], calls[0], strict=False))
        expect(group_class.unbox(values["process_group"]) is group, "a kernel is given the script's process group")
        reduction = values["reduce_op"]
        expect(
            isinstance(reduction, torch.ScriptObject) and reduction._has_method("op"), "a kernel is given a reduction that can be compared"
        )
        expect(int(reduction.op()) == 0, "the number of SUM is 0")
        group.boxed()


def _work_from_future() -> None:
    torch, c = module("torch"), module("torch._C._distributed_c10d")
    future = torch.futures.Future()
    future.set_result([])
    work = c._create_work_from_future(future)
    expect(work.wait(), "a Work that is made of a future is done when that is")
    expect(c.Work.unbox(work.boxed()).wait(), "a Work comes back from where C++ keeps it")


def _python_work() -> None:
    work_class: Any = module("torch.distributed").Work

    class Own(work_class):  # type: ignore[misc]
        waited = 0

        def wait(self, timeout: Any = None) -> bool:
            self.waited += 1
            return True

        def _source_rank(self) -> int:
            return 7

    own = Own()
    back = work_class.unbox(own.boxed())
    back.wait()
    expect(own.waited == 1, "C++ waits for a Work that is written in Python by its own method")
    expect(back._source_rank() == 7, "C++ reads from a Work in Python where its message came from")


def _work_wait() -> None:
    torch, dist, waited = module("torch"), module("torch.distributed"), list[Any]()
    wait = dist.Work.wait

    def noted(work: Any, *args: Any) -> Any:
        waited.append(work)
        return wait(work, *args)

    with replaced(dist.Work, "wait", noted), world():
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        expect(len(waited) == 1 and waited[0] is work, "a script waits by Work.wait, as the class has it")


def _async_tensor() -> None:
    torch, functional, made = module("torch"), module("torch.distributed._functional_collectives"), list[Any]()
    kind = functional.AsyncCollectiveTensor
    has(kind, "trigger_wait")
    make = kind.__new__

    def noted(cls: Any, elem: Any) -> Any:
        made.append(make(cls, elem))
        return made[-1]

    with replaced(kind, "__new__", staticmethod(noted)), world() as group:
        result = functional.all_reduce(torch.ones(1), "sum", group)
        expect(len(made) == 1 and made[0] is result, "the result of a functional collective is an AsyncCollectiveTensor")
        result.trigger_wait()


def _broadcast_coalesced() -> None:
    torch, dist, calls = module("torch"), module("torch.distributed"), list[int]()
    stock = dist._broadcast_coalesced

    def noted(group: Any, tensors: Any, *args: Any, **kwargs: Any) -> None:
        calls.append(len(tensors))
        stock(group, tensors, *args, **kwargs)

    with replaced(dist, "_broadcast_coalesced", noted), world() as group:
        module("torch.distributed.utils")._sync_params_and_buffers(group, [torch.ones(1), torch.ones(2)], 1 << 20, 0)
        expect(calls == [2], "DDP gives ranks the same parameters by torch.distributed._broadcast_coalesced")


def _objects() -> None:
    """Try the functions that move objects, and the names of their arguments: they are searched for among the callers of a collective."""
    dist = module("torch.distributed")
    named = module("understudy.worker.collectives.calls").OBJECTS
    home = str(Path(dist.__file__).parent)
    for name, argument in named.items():
        function = inspect.unwrap(getattr(dist, name))
        expect(argument in inspect.signature(function).parameters, f"{name} has the argument {argument}")
        expect(function.__code__.co_filename.startswith(home) and function.__code__.co_name == name, f"{name} is in torch.distributed")


def _loader() -> None:
    data = module("torch.utils.data")
    loading = module("torch.utils.data.dataloader")
    base = loading._BaseDataLoaderIter
    loader = data.DataLoader(range(6), batch_size=2)
    iterator = iter(loader)
    expect(isinstance(iterator, base), "the iterator of a DataLoader is a _BaseDataLoaderIter")
    expect(type(iterator) is loading._SingleProcessDataLoaderIter, "without worker processes it is a _SingleProcessDataLoaderIter")
    expect(iterator._dataset_kind == loading._DatasetKind.Map, "_dataset_kind tells map-style datasets")
    expect([list(batch) for batch in loader._index_sampler] == [[0, 1], [2, 3], [4, 5]], "_index_sampler gives the indices of batches")
    expect(list(next(iterator._sampler_iter)) == [0, 1], "_sampler_iter gives the indices of the next batch")
    iterator._num_yielded += 1
    expect(next(iterator).tolist() == [2, 3], "a batch whose indices were taken from _sampler_iter is skipped")
    expect(iterator._num_yielded == 2, "_num_yielded counts batches")
    expect(loader._iterator is None, "a loader keeps an iterator only if its workers are persistent")


def _stateful_loader() -> None:
    try:
        stateful = module("torchdata.stateful_dataloader")
    except ImportError as error:
        raise NotHere("torchdata is not installed") from error
    loader = stateful.StatefulDataLoader(range(2), batch_size=2)
    for _ in loader:
        pass
    iterator = loader._iterator
    expect(iterator is None or iterator._finished, "a StatefulDataLoader keeps its iterator, which knows that it has reached its end")


def _writer() -> None:
    torch, opened = module("torch"), list[Any]()
    stock = torch.serialization._open_zipfile_writer

    def noted(name: Any) -> Any:
        opened.append(name)
        return stock(name)

    with replaced(torch.serialization, "_open_zipfile_writer", noted):
        buffer = io.BytesIO()
        torch.save({}, buffer)
        expect(opened == [buffer], "torch.save opens what it writes by torch.serialization._open_zipfile_writer")


def _checkpoint() -> None:
    saver, package = module("torch.distributed.checkpoint.state_dict_saver"), module("torch.distributed.checkpoint")
    has(saver, "_save_state_dict", "save", "async_save")
    has(package, "save", "async_save")
    names = inspect.unwrap(saver.save).__code__.co_names
    expect("_save_state_dict" in names, "a distributed checkpoint is saved by _save_state_dict, whatever name it was imported under")
    executor = module("torch.distributed.checkpoint._async_thread_executor")._ThreadBasedAsyncCheckpointExecutor
    has(executor, "execute_save")
    names = inspect.unwrap(saver.async_save).__code__.co_names
    expect({executor.__name__, "execute_save"} <= set(names), "one in the background is saved by execute_save of a thread's executor")


def _storage() -> None:
    torch, reductions = module("torch"), module("torch.multiprocessing.reductions")
    tensor = torch.ones(3)
    reference = reductions.StorageWeakRef(tensor.untyped_storage())
    expect(reference.cdata == tensor[1:].untyped_storage()._cdata, "a storage is known by its _cdata, whatever view is asked")
    expect(not reference.expired(), "a weak reference to a storage is valid while a tensor uses it")
    del tensor
    expect(reference.expired(), "a weak reference to a storage ends with the last tensor that uses it")


def _reductions() -> None:
    """Try the numbers of reductions, from which messages take their names."""
    kinds = module("torch.distributed").ReduceOp.RedOpType
    for number, name in enumerate(module("understudy.worker.verification.announcements")._REDUCTIONS):
        expect(int(getattr(kinds, name)) == number, f"the number of {name} is {number}")


def _pytree() -> None:
    tree, thing = module("torch.utils._pytree"), object()
    expect(tree.tree_leaves({"a": [1, (2, thing)]}) == [1, 2, thing], "tree_leaves gives the leaves of containers")
    expect(tree.tree_leaves(thing) == [thing], "a value that is no container is its own leaf")
    expect(tree.tree_map(str, {"a": [1, (2,)]}) == {"a": ["1", ("2",)]}, "tree_map keeps the containers")


def _dynamo() -> None:
    """Import dynamo, which is done before a fork; and try what it keeps in a function, which is no state of a script."""
    torch = module("torch")
    module("torch._dynamo")
    compiled = torch.compile(lambda value: value + 1, backend="eager")  # compiled when it is called, which never happens
    disabled = torch._dynamo.disable(lambda value: value)
    for function in (compiled, disabled):
        expect(any(name.startswith("_torch") for name in vars(function)), "what torch.compile keeps in a function begins with _torch")


def _threads_of_autograd() -> None:
    """Try that threads which C++ has started, as autograd's, can be distinguished from those of a script."""
    known = list[bool]()
    done = threading.Event()

    def look() -> None:
        known.append(isinstance(threading.current_thread(), threading._DummyThread))
        done.set()

    _thread.start_new_thread(look, ())  # as unknown to Python's threading as one of C++
    done.wait()
    script = threading.Thread(target=look)
    script.start()
    script.join()
    expect(known == [True, False], "a thread that Python has not started is known as such")


SCRIPT = (
    Probe(
        "dispatcher-kernels",
        "every collective is seen, recorded and replayed, from Python, C++ and autograd",
        (
            "collectives.interception",
            "collectives.setup_record",
            "collectives.calls",
            "drill.step_replay",
            "verification.call_sequences",
            "verification.announcements",
        ),
        ("_C", "_schema", "_dispatch_key_for_device", "_has_method", "_allgather_base_", "_reduce_scatter_base_"),
        _kernels,
    ),
    Probe(
        "work-from-future",
        "a replayed collective gives a Work that is done",
        ("drill.step_replay", "frameworks.ddp"),
        ("_create_work_from_future",),
        _work_from_future,
    ),
    Probe("python-work", "a drill copies results when a collective is done", ("drill.step_replay",), ("_source_rank",), _python_work),
    Probe("work-wait", "which Works a script has waited for", ("guards.async_work",), (), _work_wait),
    Probe(
        "async-tensor",
        "results of functional collectives exist before a vote",
        ("guards.async_work",),
        ("_functional_collectives",),
        _async_tensor,
    ),
    Probe(
        "broadcast-coalesced",
        "where DDP's broadcast of parameters goes",
        ("collectives.setup_record",),
        ("_broadcast_coalesced",),
        _broadcast_coalesced,
    ),
    Probe(
        "threads-of-autograd",
        "which collectives belong to a step",
        ("verification.issued",),
        ("_DummyThread",),
        _threads_of_autograd,
    ),
    Probe("object-collectives", "objects are compared as objects, not as pickles", ("collectives.calls",), (), _objects),
    Probe("reductions", "messages name the reduction that does not match", ("verification.announcements",), (), _reductions),
    Probe("storages", "which memory is registered state", ("collectives.setup_record",), ("_cdata",), _storage),
    Probe(
        "data-loader",
        "a loader goes on where the lost rank's was, without reading the data that it skips",
        (
            "data.loaders",
            "data.manual_iterators",
            "integrations.prepared_loaders",
            "integrations.lightning.data",
            "census.baseline",
            "census.naming",
            "census.walk",
            "census.readers.moving",
            "census.readers.__init__",
        ),
        (
            *("_BaseDataLoaderIter", "_SingleProcessDataLoaderIter", "_DatasetKind", "_dataset_kind"),
            *("_num_yielded", "_sampler_iter", "_index_sampler", "_iterator"),
        ),
        _loader,
    ),
    Probe("stateful-loader", "whether its iterator is used up", ("data.manual_iterators",), ("_finished", "_iterator"), _stateful_loader),
    Probe("save-writer", "files that a newcomer must not write", ("guards.state_reads",), ("_open_zipfile_writer",), _writer),
    Probe(
        "checkpoint-saver",
        "the same for distributed checkpoints, and those in the background are waited for",
        ("guards.state_reads", "guards.async_saves"),
        ("_save_state_dict", "_async_thread_executor", "_ThreadBasedAsyncCheckpointExecutor"),
        _checkpoint,
    ),
    Probe(
        "pytree",
        "tensors in arguments of a step",
        ("guards.arguments", "integrations.lightning.metrics", "step.open_transaction"),
        ("_pytree",),
        _pytree,
    ),
    Probe(
        "dynamo",
        "imported before a fork, so that workers share it; what it keeps in objects is no state",
        ("process.preload", "census.walk"),
        ("_dynamo", "_torch"),
        _dynamo,
    ),
)
