"""Process groups: how communicators are made, replaced inside a group, and joined again; the stores in which their members meet."""

from __future__ import annotations

import contextlib
import json
import socket
from datetime import timedelta
from typing import Any

from understudy.worker.doctor.base import Changed, NotHere, Probe, expect, expect_signature, gloo, has, module, replaced, world

FIRST = 17  # the first number that is assigned (transport.groups)
LIMIT = timedelta(seconds=30)


def _bindings() -> None:
    """Try the names that are imported from torch's C++ half."""
    bindings, c10d = module("torch._C._distributed_c10d"), module("torch.distributed.distributed_c10d")
    has(bindings, "HashStore", "PrefixStore", "Store", "TCPStore", "BuiltinCommHookType")
    has(c10d, "ProcessGroupGloo", "Backend", "BackendConfig", "GroupName", "ProcessGroup")
    has(bindings.Work, "boxed", "unbox", "wait", "get_future", "is_completed", "is_success", "exception", "result", "synchronize")


def _gloo_class() -> None:
    c10d, made = module("torch.distributed.distributed_c10d"), list[tuple[Any, ...]]()
    stock: Any = c10d.ProcessGroupGloo

    class Noted(stock):  # type: ignore[misc]
        def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, **more: Any) -> None:
            made.append((rank, size))
            expect(set(more) <= {"devices", "enable_reconfigure"}, f"torch makes a Gloo communicator with a timeout only (it gives {more})")
            super().__init__(store, rank, size, timeout)

    with replaced(c10d, "ProcessGroupGloo", Noted), world():
        expect(made == [(0, 1)], "torch makes communicators of the class at distributed_c10d.ProcessGroupGloo")


def _gloo_options() -> None:
    kind = module("torch.distributed").ProcessGroupGloo
    has(kind, "create_device", "create_default_device")
    made = gloo()
    has(made.options, "_devices", "_threads", "_timeout", "global_ranks_in_group", "group_name")
    expect(made.options._threads == 1 and len(made.options._devices) == 1, "a communicator has the options that it was made with")
    again = kind._Options()
    again._devices = made.options._devices
    again._timeout = LIMIT
    kind(module("torch._C._distributed_c10d").HashStore(), 0, 1, again)  # another one over the same device


def _sequence_numbers() -> None:
    made, one = gloo(), module("torch").ones(1)
    made._set_sequence_number_for_group()
    before = made._get_sequence_number_for_group()
    made.allreduce([one]).wait()
    made.barrier().wait()
    expect(made._get_sequence_number_for_group() == before + 2, "the sequence number of a communicator grows by one with each collective")


def _register_backend() -> None:
    torch, c10d = module("torch"), module("torch.distributed.distributed_c10d")
    cpu = torch.device("cpu")
    with world() as group:
        first, second, third = group._get_backend(cpu), gloo(), gloo()
        for number, communicator in ((FIRST, second), (FIRST + 1, third)):
            kind = c10d.ProcessGroup.BackendType(number)
            communicator._set_sequence_number_for_group()
            group._register_backend(cpu, kind, communicator)
            group._set_default_backend(kind)
            group._set_group_name(c10d.GroupName(group.group_name))
            expect(
                group._get_backend(cpu) is communicator, "a communicator that is registered under a new number takes the place of the last"
            )
        before = [one._get_sequence_number_for_group() for one in (first, second, third)]
        module("torch.distributed").all_reduce(torch.ones(1))
        after = [one._get_sequence_number_for_group() for one in (first, second, third)]
        expect(after == [before[0], before[1], before[2] + 1], "collectives go to the communicator that was registered last")
    c10d.ProcessGroup.BackendType(255)


def _tables() -> None:
    c10d = module("torch.distributed.distributed_c10d")
    with world() as group:
        tables = c10d._world
        expect(list(tables.pg_map) == [group], "_world.pg_map has every group, in the order in which they were made")
        name, store = tables.pg_map[group]
        expect(tables.pg_names[group] == group.group_name, "_world.pg_names has the names of groups")
        expect(tables.pg_group_ranks[group] == {0: 0}, "_world.pg_group_ranks has the rank of each global rank in a group")
        devices = c10d.BackendConfig(c10d.Backend(name)).get_device_backend_map()
        expect(devices.get("cpu") == "gloo", "the name of a group's backend shows which one serves which device")
        tables.pg_map[group] = (name, module("torch._C._distributed_c10d").PrefixStore("other", store))
        expect(c10d._get_default_store() is not store, "the store of a group is the one in _world.pg_map")


def _helper() -> None:
    c10d, made = module("torch.distributed.distributed_c10d"), list[Any]()
    stock = c10d._new_process_group_helper
    expect_signature(stock, "group_size")

    def noted(group_size: int, *args: Any, **kwargs: Any) -> Any:
        made.append((group_size, stock(group_size, *args, **kwargs)))
        return made[-1][1]

    with replaced(c10d, "_new_process_group_helper", noted), world() as group:
        module("torch.distributed").new_group([0])
        expect([size for size, _ in made] == [1, 1], "every group is made by _new_process_group_helper, which is looked up for each")
        expect(made[0][1][0] is group and len(made[0][1]) == 2, "_new_process_group_helper gives the group and its store")


def _default_backend() -> None:
    """Try the size of a group that has no default backend."""
    torch, c10d = module("torch"), module("torch.distributed.distributed_c10d")
    c = module("torch._C._distributed_c10d")
    group = c10d.ProcessGroup(c.HashStore(), 2, 4)
    group._register_backend(torch.device("cpu"), c10d.ProcessGroup.BackendType.GLOO, gloo())
    group._set_default_backend(c10d.ProcessGroup.BackendType.UNDEFINED)
    expect((group.rank(), group.size()) == (2, 4), "a group without a default backend has the rank and size that it was made with")


def _python_store() -> None:
    c = module("torch._C._distributed_c10d")
    base: Any = c.Store

    class Through(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[str, Any] = {}

        def set(self, key: str, value: Any) -> None:
            self.kept[key] = value

        def get(self, key: str) -> bytes:
            return bytes(self.kept[key])

        def has_extended_api(self) -> bool:
            return False

    through = Through()
    prefixed = c.PrefixStore("p", through)
    prefixed.set("key", "value")
    expect(list(through.kept) == ["p/key"], "torch calls the methods of a store that is written in Python")
    expect(prefixed.get("key") == b"value", "the results of a store in Python come back through torch")


def _tcp_store() -> None:
    c = module("torch._C._distributed_c10d")
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = c.TCPStore(
            "127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=listener.detach(), timeout=timedelta(seconds=10)
        )
    client = c.TCPStore("127.0.0.1", port, None, False, timeout=timedelta(seconds=10))
    client.set_timeout(LIMIT)
    store = c.PrefixStore("g1", client)
    expect(store.compare_set("first", "", b"mine") == b"mine", "compare_set sets a key that does not exist")
    expect(store.compare_set("first", "", b"other") == b"mine", "compare_set leaves a key that exists")
    expect(
        store.add("count", 1) == 1 and store.check(["first"]) and not store.check(["no"]), "add counts, check shows whether a key exists"
    )
    store.wait(["first"], LIMIT)
    expect(store.multi_get(["first"]) == [b"mine"], "multi_get returns the values of keys")
    expect(server.get("g1/first") == b"mine", "a store server answers in its own process too")


def _reconfigure() -> None:
    """Try that a communicator which was made as usual joins, alone, as a new one does with its peers."""
    c, torch = module("torch._C._distributed_c10d"), module("torch")
    made = gloo()
    has(made, "get_reconfigure_handle", "reconfigure")
    for number in (1, 2):
        options = c.ReconfigureOptions()
        options.uuid, options.handles = number, [made.get_reconfigure_handle()]
        made.reconfigure(options).wait()
        one = torch.ones(1)
        made.allreduce([one]).wait()
        expect(one.item() == 1.0 and made.size() == 1, "a Gloo communicator works after it was joined again")


def _gloo_waits() -> None:
    """Try what `gloo_waits` itself has found: it falls back without a message."""
    waits = module("understudy.worker.transport.backends.gloo_waits")
    import platform

    if platform.machine() not in waits._WAITS:
        raise Changed(f"threads that wait are known on {' and '.join(waits._WAITS)} only, not on {platform.machine()}")
    waits._Gloo()


def _nccl() -> None:
    dist, c10d = module("torch.distributed"), module("torch.distributed.distributed_c10d")
    if not dist.is_nccl_available():
        raise NotHere("this torch is built without NCCL")
    kind: Any = c10d.ProcessGroupNCCL
    has(kind, "Options", "abort", "_get_sequence_number_for_group", "_set_sequence_number_for_group", "options")
    has(kind.Options(), "global_ranks_in_group", "group_name")
    has(dist, "DistBackendError")

    class Derived(kind):  # type: ignore[misc]
        pass

    expect(issubclass(Derived, kind), "NCCL's communicator can be derived from")


def _nccl_record() -> None:
    bindings = module("torch._C._distributed_c10d")
    if not module("torch.distributed").is_nccl_available():
        raise NotHere("this torch is built without NCCL")
    has(bindings, "_dump_nccl_trace_json")
    written = json.loads(bindings._dump_nccl_trace_json())  # without "entries" while there are none
    expect("pg_status" in written, "torch writes what NCCL's communicators do as JSON")


def _names() -> None:
    with world() as group:
        has(group, "group_desc")
        make = module("torch.distributed.device_mesh").init_device_mesh  # with its own backend a dimension has its own group
        described = make("cpu", (1, 1), mesh_dim_names=("dp", "tp"), backend_override={"tp": "gloo"}).get_group("tp").group_desc
        expect(described == "mesh_tp", f"a device mesh describes its groups as mesh_ and their dimension (it is {described})")


GROUPS = (
    Probe(
        "bindings",
        "stores, groups and Works",
        (
            *("api.job", "recovery.newcomer", "frameworks.ddp", "frameworks.comm_hooks", "drill.step_replay"),
            *("collectives.setup_record", "transport.groups", "transport.rendezvous"),
            *("transport.backends.base", "transport.backends.gloo", "transport.backends.nccl"),
        ),
        ("_C", "_distributed_c10d"),
        _bindings,
    ),
    Probe(
        "gloo-class",
        "communicators of groups that the script makes are ours",
        ("transport.backends.gloo", "transport.groups"),
        (),
        _gloo_class,
    ),
    Probe(
        "gloo-options",
        "one queue thread, our own address, and the device of a communicator that is replaced",
        ("transport.backends.gloo",),
        ("_Options", "_devices", "_threads", "_timeout"),
        _gloo_options,
    ),
    Probe(
        "sequence-numbers",
        "how many collectives were issued on a communicator",
        ("transport.groups", "transport.backends.base", "transport.backends.gloo", "transport.backends.nccl"),
        ("_get_sequence_number_for_group", "_set_sequence_number_for_group"),
        _sequence_numbers,
    ),
    Probe(
        "register-backend",
        "another communicator takes the place of a lost one inside the script's group, under a fresh number",
        ("transport.groups", "collectives.setup_record"),
        ("_register_backend", "_get_backend", "_set_default_backend", "_set_group_name"),
        _register_backend,
    ),
    Probe(
        "group-tables",
        "the groups, their members, and which backend serves which device",
        ("transport.groups", "collectives.interception", "guards.default_store"),
        ("_world", "_get_default_store"),
        _tables,
    ),
    Probe(
        "group-names",
        "groups are known by their dimension of a device mesh, for --keep-together and status --topology",
        ("transport.groups",),
        (),
        _names,
        without="groups of a device mesh have other names, and --keep-together must name these",
    ),
    Probe(
        "group-helper",
        "groups of a newcomer that sets up alone have their real size",
        ("transport.groups",),
        ("_new_process_group_helper",),
        _helper,
    ),
    Probe("default-backend", "the same", ("transport.groups",), ("_set_default_backend",), _default_backend),
    Probe(
        "python-store", "dead communicators keep no connection to a store", ("transport.rendezvous",), ("_distributed_c10d",), _python_store
    ),
    Probe("tcp-store", "every worker serves a store from its start, on a port that is known", ("transport.rendezvous",), (), _tcp_store),
    Probe(
        "reconfigure",
        "a communicator is joined again in place",
        ("transport.backends.rejoining",),
        ("_C", "_distributed_c10d"),
        _reconfigure,
        without="with UNDERSTUDY_REJOIN=0 a new communicator takes the place of a lost one, under a fresh backend number",
        since="2.14",
        instead="a new communicator takes the place of a lost one, under a fresh backend number",
    ),
    Probe(
        "gloo-waits",
        "waits that Gloo has forgotten are found, by its vtable, and ended, by its own functions",
        ("transport.backends.gloo_waits",),
        (),
        _gloo_waits,
        without="a rank that waits for a message that was half sent is replaced instead of freed, and hangs are judged with less evidence",
    ),
    Probe("nccl-class", "as gloo-class, on GPUs", ("transport.backends.nccl",), (), _nccl, without="jobs over NCCL cannot run"),
    Probe(
        "nccl-record",
        "the hang detector distinguishes a rank whose device hangs from the ranks that wait for it",
        ("transport.backends.nccl_waits",),
        ("_C", "_distributed_c10d", "_dump_nccl_trace_json"),
        _nccl_record,
        without="a rank whose device hangs in a job over NCCL is not named",
    ),
)
