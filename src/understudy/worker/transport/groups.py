"""The process groups of the script, and the communicators inside them, which are replaced in place.

The script keeps the stock `ProcessGroup` objects (DDP, FSDP2, DeviceMesh, DTensor and user code refer to them); only the communicator
inside them is replaced. Its backend makes, breaks and releases it (`backends.base`).

A backend returns either the communicator that was there, joined with its new peers, or another one. That is registered under a fresh
`BackendType` value, since torch keeps the old one when a known type is registered again. About 230 values are left for that, and the
dead communicator stays in memory. Both limits are those of the pure-Python path.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore, PrefixStore, Store
from torch.distributed import ProcessGroup, distributed_c10d

from understudy.common.page_view import UNKNOWN
from understudy.messages import worker_processes
from understudy.worker import hooks, patches
from understudy.worker.encoding.digests import digest
from understudy.worker.encoding.messages import GroupMembers
from understudy.worker.errors import UnderstudyError
from understudy.worker.transport.backends.base import Backend, Communicator
from understudy.worker.transport.backends.registry import backends
from understudy.worker.transport.rendezvous import Rendezvous

MESH = "mesh_"  # begins the description of a group that a device mesh has made; its dimension follows
UNNAMED = ("", "undefined", "default")  # descriptions of groups to which none was given; the last of a mesh's group of all ranks
PROBE = 512  # numbers in a sum that shows the order in which a group adds up
FIRST_TYPE = 16  # BackendType values from here on are free
LAST_TYPE = 255


def _devices_of(group: ProcessGroup) -> dict[str, str]:
    """Return device type -> name of the backend, of a group."""
    kind = distributed_c10d.Backend(distributed_c10d._world.pg_map[group][0])
    return {device: str(name) for device, name in distributed_c10d.BackendConfig(kind).get_device_backend_map().items()}


@dataclass(frozen=True)
class _Made:
    backend: Backend
    communicator: Communicator


@dataclass(frozen=True)
class Replacement:
    """A connected communicator on its way into a group."""

    group: ProcessGroup
    name: str
    devices: list[str]
    made: _Made


class _Host:
    """The host of `backend` in this process."""

    def __init__(self, groups: Groups, backend: Backend) -> None:
        self._groups = groups
        self._backend = backend

    @property
    def own_port(self) -> int | None:
        return self._groups.own_port

    def world(self, store: Store, rank: int, size: int) -> tuple[Store, int, int]:
        return (HashStore(), 0, 1) if self._groups.detached else (store, rank, size)

    def keep(self, communicator: Communicator) -> None:
        self._groups.keep(_Made(self._backend, communicator))


class Groups:
    """All process groups of this process, and the communicators inside them.

    `install` puts our backends in the place where torch looks them up, so that every group that the script makes from then on, by
    whatever call, has a communicator of ours. `detached`: groups are made without peers (a newcomer's set-up).
    """

    def __init__(self, own_port: int | None = None) -> None:
        self.detached = False
        self.own_port = own_port
        self._backends = backends()
        self._wakers = [waker for backend in self._backends.values() if (waker := backend.waker(self.closed)) is not None]
        self._woken_before = 0  # the present communicators
        self._installed: dict[str, Backend] = {}
        self._made: list[_Made] = []
        self._before_abort: list[Callable[[], None]] = []
        self._aborted_at = 0  # unix time in nanoseconds
        self._drained: list[_Made] = []  # those that the groups still have: torch refers only to their C++ half
        self._numbers: dict[str, ProcessGroup.BackendType] = {}  # of communicators that are not those that the groups were made with
        self._last_type = FIRST_TYPE
        self._lent: set[str] = set()  # groups for which a constructor may still be at work with what the last communicator left
        self._building = threading.local()  # a thread that connects keeps its communicators to itself until they are adopted

    def install(self) -> None:
        for name, backend in self._backends.items():
            if backend.available():
                backend.install(_Host(self, backend))
                self._installed[name] = backend

        why = "a group that is made without peers has its size"
        patches.wrap(distributed_c10d, "_new_process_group_helper", self._sized, why)

    def _sized(self, make: Callable[..., tuple[Any, Any]], group_size: int, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return a constructor that sets size and rank. From torch 2.14 on the size and rank of a group are those of its default backend,
        which is alone in a group that is `detached`; without a default backend they are those that the group was made with. Its
        collectives depend on the device in any case.
        """
        group, store = make(group_size, *args, **kwargs)
        if self.detached and isinstance(group, ProcessGroup) and group.size() != group_size:
            group._set_default_backend(ProcessGroup.BackendType.UNDEFINED)
        return group, store

    def keep(self, made: _Made) -> None:
        getattr(self._building, "list", self._made).append(made)

    def members(self) -> list[tuple[ProcessGroup, str, list[int]]]:
        """Return the script's groups that have this rank as a member, in the order in which they were made: group, name, global ranks."""
        world = distributed_c10d._world
        return [
            (group, world.pg_names[group], sorted(world.pg_group_ranks[group], key=world.pg_group_ranks[group].__getitem__))
            for group in world.pg_map
        ]

    def describe(self) -> list[GroupMembers]:
        return [GroupMembers(name, ranks) for _, name, ranks in self.members()]

    def named(self, rank: int) -> list[GroupMembers]:
        """Return the groups of several ranks that have a name and of which `rank`, this worker's, is the first member. The name is the
        dimension of a device mesh, or the description that the script has given; "world" is the group of all ranks.
        """
        found = []
        for number, (group, _, ranks) in enumerate(self.members()):
            described = "world" if number == 0 else str(group.group_desc).removeprefix(MESH)
            if described not in UNNAMED and len(ranks) > 1 and min(ranks) == rank:
                found.append(GroupMembers(described, ranks))
        return found

    def before_abort(self, act: Callable[[], None]) -> None:
        """Have `act` called right before communicators are broken, on any thread and perhaps twice."""
        self._before_abort.append(act)

    def abort(self) -> None:
        for act in self._before_abort:
            act()
        self._aborted_at = time.time_ns()
        for made in list(self._made):
            made.communicator.abort()

    def drain(self) -> None:
        for made in self._made:
            made.communicator.drain()
        self._drained += self._made
        self._made = []

    def closed(self) -> bool:
        return all(made.communicator.closed() for made in list(self._made))

    def wake(self) -> None:
        """End waits that a backend has forgotten, until `stop_waking`. From any thread, also twice."""
        for waker in self._wakers:
            waker.start()

    def stop_waking(self) -> None:
        for waker in self._wakers:
            waker.stop()
        self._woken_before = self.woken()

    def woken(self) -> int:
        """Return how many waits were ended so; the results that they waited for may have any content."""
        return sum(waker.woken for waker in self._wakers)

    def is_broken(self) -> bool:
        """Return whether a peer is known to be lost, or a wait in the present communicators was ended: then results may be anything."""
        return self.woken() > self._woken_before or any(made.communicator.is_broken() for made in self._made)

    def is_failure(self, error: BaseException) -> bool:
        """Return whether a peer is known to be lost, or `error` can only come from that."""
        return self.is_broken() or any(backend.classify_error(error) for backend in self._installed.values())

    def collectives(self) -> int:
        """Return how many collectives were issued on the present communicators: the sum of their sequence numbers."""
        total = 0
        for made in list(self._made):
            total += int(made.communicator._get_sequence_number_for_group())
        return total

    def waits(self, still: float = 0.0) -> int:
        """Return how many operations of this process wait for peers in one of the communicators; `UNKNOWN` if that is not known of all.
        `still`: seconds for which it has made no progress.

        While there is none, a thread may still wait in one that is gone: then any backend with a known number counts.
        """
        present = {id(made.backend): made.backend for made in list(self._made)}
        found = [backend.waits(still, self._aborted_at) for backend in (present or self._installed).values()]
        known = [count for count in found if count != UNKNOWN]
        return UNKNOWN if not known or (present and len(known) < len(found)) else sum(known)

    def unsupported(self) -> list[str]:
        """Return the backends inside groups that cannot be rebuilt."""
        world = distributed_c10d._world
        unknown = set()
        for group in world.pg_map:
            kinds = set(_devices_of(group).values())
            unknown |= {kind for kind in kinds if kind not in self._installed}
        return sorted(unknown)

    def supported(self) -> list[str]:
        """Return the backends that can be rebuilt."""
        return sorted(self._installed)

    def sums(self, rank: int) -> dict[str, int]:
        """Return a digest of the sum that each group of three or more makes of numbers so different in size that their order shows in it.

        All members call it, with the same groups in the same order; `rank`: of this worker. The input of a member depends on that: from
        torch 2.14 on a group believes its communicator, also one that was joined in a wrong order. Only groups that add up on
        the host; between two there is no order.
        """
        found = {}
        for group, name, ranks in self.members():
            backend = self._installed.get(_devices_of(group).get("cpu", ""))
            if len(ranks) > 2 and backend is not None and backend.adds_up_on_host:
                generator = torch.Generator().manual_seed(ranks.index(rank))
                numbers = torch.randn(PROBE, generator=generator) * 10.0 ** torch.randint(-6, 7, (PROBE,), generator=generator)
                communicator: Any = group._get_backend(torch.device("cpu"))
                communicator.allreduce([numbers]).wait()
                found[name] = digest(numbers)
        return found

    def connect(self, rank: int, meeting: Rendezvous) -> list[Replacement]:
        """Return new communicators for every group of the script, connected with their peers, in the same order on every rank.

        May block for as long as a peer is missing, so the caller runs it on a thread that it can abandon. Nothing in the groups changes
        until `adopt`.
        """
        self.detached = False
        self._building.list = []
        replacements = []
        for group, name, ranks in hooks.filter("members", self.members()):
            devices = _devices_of(group)
            for kind in sorted(set(devices.values())):
                mine = [device for device, other in devices.items() if other == kind]
                backend = self._installed[kind]
                last: Any = group._get_backend(torch.device(mine[0]))
                path = f"{name}/{kind}"
                store = meeting.group_prefix(path)
                inherits = path not in self._lent
                self._lent.add(path)
                communicator = backend.connect(store, ranks.index(rank), len(ranks), last, inherits)
                replacements.append(Replacement(group, name, mine, _Made(backend, communicator)))
        return replacements

    def _fresh_type(self) -> ProcessGroup.BackendType:
        self._last_type += 1
        if self._last_type > LAST_TYPE:
            raise UnderstudyError(worker_processes.NO_NUMBERS_LEFT())
        return ProcessGroup.BackendType(self._last_type)

    def adopt(self, replacements: list[Replacement], meeting: Rendezvous) -> None:
        """Put connected communicators into their groups; the old ones are dead."""
        world = distributed_c10d._world
        fresh: dict[str, ProcessGroup.BackendType] = {}  # by backend
        for item in replacements:
            kind, communicator = item.made.backend.name, item.made.communicator
            path = f"{item.name}/{kind}"
            self._lent.discard(path)
            if not any(made.communicator is communicator for made in self._made):
                self._made.append(item.made)
            inside: Any = item.group._get_backend(torch.device(item.devices[0]))
            if inside is not communicator:
                if kind not in fresh:
                    fresh[kind] = self._fresh_type()
                self._numbers[path] = fresh[kind]
                for device in item.devices:
                    item.group._register_backend(torch.device(device), fresh[kind], communicator)  # type: ignore[arg-type]
            known = distributed_c10d.Backend.backend_type_map.get(kind, ProcessGroup.BackendType.CUSTOM)
            item.group._set_default_backend(self._numbers.get(path, known))
            item.group._set_group_name(distributed_c10d.GroupName(item.name))
            world.pg_map[item.group] = (world.pg_map[item.group][0], PrefixStore(f"{item.name}/", meeting.store))
        self._drained.clear()
        if world.pg_map:  # groups that the script makes from now on meet in this generation's store too
            default = next(iter(world.pg_map))
            world.pg_map[default] = (world.pg_map[default][0], meeting.store)
