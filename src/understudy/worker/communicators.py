"""Process-group backends that can be broken from outside and replaced in place.

The script keeps the stock `ProcessGroup` objects (DDP, FSDP2, DeviceMesh, DTensor and user code hold them); what is replaced is
the backend inside them. A backend here is torch's own class with three more methods:

    abort()     from any thread: every pending and future operation fails at once
    closed()    after abort: whether the connections are gone on this side
    drain()     on the main thread, after abort: returns when nothing of it can write into memory any more
    is_broken() whether a connection has failed

Gloo runs its collectives on one queue thread here, so that a last operation that fails marks the end of all before it: that
is the drain. (With several queue threads there is no such mark short of destroying the backend, which needs C++.)

Replacing works by registering the new backend under a fresh `BackendType` value, since torch keeps the old backend when a known
type is registered again. About 230 values are left for that; the dead backend stays in memory with a sleeping thread, but without a
descriptor (`rendezvous.Door`). Both limits are those of the pure-Python path.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store
from torch.distributed import ProcessGroup, ProcessGroupGloo, distributed_c10d

from understudy.common.page_view import UNKNOWN
from understudy.worker import gloo_waits
from understudy.worker.digests import digest
from understudy.worker.errors import UnderstudyError
from understudy.worker.rendezvous import Door, Rendezvous
from understudy.worker.sockets import Connections

PROBE = 512  # numbers in a sum that shows the order in which a group adds up
FIRST_TYPE = 16  # BackendType values from here on are free
LAST_TYPE = 255


def _gloo_devices() -> list[Any]:
    interfaces = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    if interfaces:
        return [ProcessGroupGloo.create_device(interface=name) for name in interfaces]
    address = os.environ.get("UNDERSTUDY_ADDRESS")
    return [ProcessGroupGloo.create_device(hostname=address) if address else ProcessGroupGloo.create_default_device()]


class GlooCommunicator(ProcessGroupGloo):
    """Gloo with an abort that works. Arguments as `ProcessGroupGloo`; `devices` of a backend that this one replaces."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, own_port: int | None = None, devices: list[Any] | None = None
    ) -> None:
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = devices or _gloo_devices()
        options._threads = 1
        options._timeout = timeout
        self._connections = Connections(ignore_port=own_port)
        with self._connections.noting():
            super().__init__(store, rank, size, options)
        self._connections.watch()

    def abort(self) -> None:
        self._connections.shut()
        self._connections.discard()

    def closed(self) -> bool:
        return self._connections.closed()

    def drain(self) -> None:
        """Nothing is read from connections any more since `abort`, so what can still write are the operations themselves."""
        with suppress(RuntimeError):  # as it should be: the connections are shut
            self.barrier().wait()  # type: ignore[attr-defined]
        self._connections.discard()  # the barrier may have made Gloo watch a connection again that it has forgotten

    def is_broken(self) -> bool:
        return self._connections.broken()


def _nccl_class() -> type[Any] | None:
    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        return None

    class NcclCommunicator(distributed_c10d.ProcessGroupNCCL):
        """NCCL behind the same methods. Its own abort cancels running kernels; `drain` waits for the streams to be idle."""

        def closed(self) -> bool:
            return True  # nobody waits for Gloo in it

        def drain(self) -> None:
            torch.cuda.synchronize()

        def is_broken(self) -> bool:
            return False  # NCCL reports by exception; the caller judges its text

    return NcclCommunicator


def _devices_of(group: ProcessGroup) -> dict[str, str]:
    """Device type -> backend of a group."""
    kind = distributed_c10d.Backend(distributed_c10d._world.pg_map[group][0])
    return {device: str(name) for device, name in distributed_c10d.BackendConfig(kind).get_device_backend_map().items()}


@dataclass(frozen=True)
class Replacement:
    """A connected backend on its way into a group."""

    group: ProcessGroup
    name: str
    kind: str
    devices: list[str]
    backend: Any


class Groups:
    """All process groups of this process, and the backends inside them.

    `install` puts our classes in the place where torch looks them up, so that every group that the script makes from then
    on, by whatever call, has a backend of ours. `detached`: groups are made without peers (a newcomer's set-up).
    """

    def __init__(self, own_port: int | None = None) -> None:
        self.detached = False
        self._own_port = own_port
        self._made: list[Any] = []  # keeps the Python half of each backend alive: torch only holds the C++ half
        self._last_type = FIRST_TYPE
        self._lent: set[str] = set()  # groups for which a constructor may still be at work with their devices
        self._building = threading.local()  # a thread that connects keeps its backends to itself until they are adopted
        self._installed: dict[str, Any] = {}

    def install(self) -> None:
        groups = self

        class Gloo(GlooCommunicator):
            def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
                if groups.detached:
                    store, rank, size = HashStore(), 0, 1
                devices = getattr(groups._building, "devices", None)
                super().__init__(store, rank, size, timeout, own_port=groups._own_port, devices=devices)
                groups._keep(self)

        self._installed["gloo"] = Gloo
        distributed_c10d.ProcessGroupGloo = Gloo  # type: ignore[misc]
        nccl = _nccl_class()
        if nccl is not None:
            stock = nccl

            class Nccl(stock):  # type: ignore[misc,valid-type]
                def __init__(self, store: Store, rank: int, size: int, options: Any) -> None:
                    if groups.detached:
                        store, rank, size = HashStore(), 0, 1
                    super().__init__(store, rank, size, options)
                    groups._keep(self)

            Nccl.Options = distributed_c10d.ProcessGroupNCCL.Options
            self._installed["nccl"] = Nccl
            distributed_c10d.ProcessGroupNCCL = Nccl  # type: ignore[misc]

    def _keep(self, backend: Any) -> None:
        getattr(self._building, "list", self._made).append(backend)

    def members(self) -> list[tuple[ProcessGroup, str, list[int]]]:
        """The script's groups of which this rank is a member, in the order in which they were made: group, name, global ranks."""
        world = distributed_c10d._world
        return [
            (group, world.pg_names[group], sorted(world.pg_group_ranks[group], key=world.pg_group_ranks[group].__getitem__))
            for group in world.pg_map
        ]

    def describe(self) -> list[list[Any]]:
        return [[name, ranks] for _, name, ranks in self.members()]

    def abort(self) -> None:
        for backend in list(self._made):
            backend.abort()

    def drain(self) -> None:
        for backend in self._made:
            backend.drain()
        self._made.clear()

    def closed(self) -> bool:
        return all(backend.closed() for backend in list(self._made))

    def is_broken(self) -> bool:
        return any(backend.is_broken() for backend in self._made)

    def collectives(self) -> int:
        """How many collectives were issued on the present backends: the sum of their sequence numbers."""
        total = 0
        for backend in list(self._made):
            total += int(backend._get_sequence_number_for_group())
        return total

    def waits(self) -> int:
        """How many threads of this process wait for peers in one of the backends; `UNKNOWN` if not all of them are Gloo."""
        return gloo_waits.count() if all(isinstance(backend, GlooCommunicator) for backend in list(self._made)) else UNKNOWN

    def unsupported(self) -> list[str]:
        """Backends inside groups that cannot be rebuilt."""
        world = distributed_c10d._world
        unknown = set()
        for group in world.pg_map:
            kinds = set(_devices_of(group).values())
            unknown |= {kind for kind in kinds if kind not in self._installed}
        return sorted(unknown)

    def sums(self) -> dict[str, int]:
        """A digest of the sum that each group of three or more makes of numbers so different in size that their order shows in it.

        All members call it, with the same groups in the same order. Only groups that add up on the host; between two there is no order.
        """
        found = {}
        for group, name, ranks in self.members():
            if len(ranks) > 2 and _devices_of(group).get("cpu") == "gloo":
                generator = torch.Generator().manual_seed(dist.get_rank(group))
                numbers = torch.randn(PROBE, generator=generator) * 10.0 ** torch.randint(-6, 7, (PROBE,), generator=generator)
                backend: Any = group._get_backend(torch.device("cpu"))
                backend.allreduce([numbers]).wait()
                found[name] = digest(numbers)
        return found

    def connect(self, rank: int, meeting: Rendezvous) -> list[Replacement]:
        """New backends for every group of the script, connected with their peers, in the same order on every rank.

        May block for as long as a peer is missing, so the caller runs it on a thread that it can leave behind. Nothing in the
        groups changes until `adopt`.
        """
        self.detached = False
        self._building.list = []
        door = Door(meeting.store)  # dead backends keep their store
        try:
            return self._connect(rank, meeting, door)
        finally:
            door.shut()

    def _connect(self, rank: int, meeting: Rendezvous, door: Door) -> list[Replacement]:
        replacements = []
        for group, name, ranks in self.members():
            devices = _devices_of(group)
            for kind in sorted(set(devices.values())):
                mine = [device for device, other in devices.items() if other == kind]
                options = group._get_backend(torch.device(mine[0])).options
                store = meeting.group_prefix(f"{name}/{kind}", door if kind == "gloo" else None)
                arguments = (store, ranks.index(rank), len(ranks))
                last = options if kind == "nccl" else options._timeout
                # The devices of the dead backend, with their thread. Not those of a constructor that was left behind: Gloo's devices
                # remember whom they were connecting, and a freed one is not forgotten.
                lent = f"{name}/{kind}"
                self._building.devices = None if lent in self._lent else getattr(options, "_devices", None)
                self._lent.add(lent)
                backend = self._installed[kind](*arguments, last)
                backend.options.global_ranks_in_group = options.global_ranks_in_group
                backend.options.group_name = options.group_name
                backend._set_sequence_number_for_group()
                replacements.append(Replacement(group, name, kind, mine, backend))
        return replacements

    def _fresh_type(self) -> ProcessGroup.BackendType:
        self._last_type += 1
        if self._last_type > LAST_TYPE:
            raise UnderstudyError(
                "this worker has joined so many new generations that its torch has no backend numbers left; "
                "move such a rank to a fresh worker in time with `understudy migrate`"
            )
        return ProcessGroup.BackendType(self._last_type)

    def adopt(self, replacements: list[Replacement], meeting: Rendezvous) -> None:
        """Puts connected backends into their groups; what is left of the old ones is dead."""
        world = distributed_c10d._world
        numbers = {kind: self._fresh_type() for kind in sorted({item.kind for item in replacements})}
        for item in replacements:
            self._lent.discard(f"{item.name}/{item.kind}")
            self._made.append(item.backend)
            number = numbers[item.kind]
            for device in item.devices:
                item.group._register_backend(torch.device(device), number, item.backend)
            item.group._set_default_backend(number)
            item.group._set_group_name(distributed_c10d.GroupName(item.name))
            world.pg_map[item.group] = (world.pg_map[item.group][0], PrefixStore(f"{item.name}/", meeting.store))
        if world.pg_map:  # groups that the script makes from now on meet in this generation's store too
            default = next(iter(world.pg_map))
            world.pg_map[default] = (world.pg_map[default][0], meeting.store)
