"""Gloo that can be broken from outside and replaced in place.

Its own abort does nothing. The sockets that a communicator opens are noted while it is made (`sockets`), and shut to break it. Gloo
runs its collectives on one queue thread here, so that a last operation that fails marks the end of all before it: that is the drain.
(With several queue threads there is no such mark short of destroying the communicator, which needs C++.)

From torch 2.14 on the same communicator is joined again with other peers (`rejoining`). Before that, and after a failed connection,
another one replaces it: the dead one stays in memory with a sleeping thread, but without a descriptor (`rendezvous.Door`), and its
device, with the thread that reads from all connections, is taken over.

Costs of replacing, in pure Python: a dead communicator stays in memory with its sleeping queue thread. The thread ends only in the
destructor, and torch's `ProcessGroup` keeps every backend in a map that no Python method empties. Cancelling a thread that waits on a C++
condition variable would end the process. The store of the first generation stays open, because the `ProcessGroup` holds it, and one more
for each later generation in which the script makes a group. With rejoining only that is left, plus what a failed connection leaves.
`tests/integration/recovery/test_leaks.py` counts all of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import HashStore, Store
from torch.distributed import ProcessGroupGloo, distributed_c10d

from understudy.messages import worker_processes
from understudy.worker import patches
from understudy.worker.errors import UsageError
from understudy.worker.transport.backends import gloo_waits, rejoining
from understudy.worker.transport.backends.base import CONNECTED_AGAIN, Backend, Communicator, Host
from understudy.worker.transport.rendezvous import Door
from understudy.worker.transport.sockets import Connections


def _gloo_devices() -> list[Any]:
    interfaces = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    if interfaces:
        return [ProcessGroupGloo.create_device(interface=name) for name in interfaces]
    address = os.environ.get("UNDERSTUDY_ADDRESS")
    return [ProcessGroupGloo.create_device(hostname=address) if address else ProcessGroupGloo.create_default_device()]


class GlooCommunicator(ProcessGroupGloo):
    """Gloo with an abort that works. Arguments as `ProcessGroupGloo`; `devices` of a communicator that this one replaces."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, own_port: int | None = None, devices: list[Any] | None = None
    ) -> None:
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = devices or _gloo_devices()
        options._threads = 1
        options._timeout = timeout
        self._own_port = own_port
        self._door = Door(store)
        self._connections = Connections(ignore_port=own_port)
        with self._connections.noting():
            super().__init__(self._door, rank, size, options)
        self._connections.watch()
        self._door.shut()

    def rejoin(self, store: Store, rank: int, size: int) -> None:
        """Join again as `rejoining.rejoin`."""
        self._door.open(store)
        try:
            connections = Connections(ignore_port=self._own_port)
            with connections.noting():
                rejoining.rejoin(self, store, rank, size)
            connections.watch()
            self._connections = connections
        finally:
            self._door.shut()

    def abort(self) -> None:
        self._connections.shut()
        self._connections.discard()

    def closed(self) -> bool:
        return self._connections.closed()

    def drain(self) -> None:
        """Drain: nothing is read from connections any more since `abort`, so only the operations themselves can still write."""
        with suppress(RuntimeError):  # the expected error: the connections are shut
            self.barrier().wait()  # type: ignore[attr-defined]
        self._connections.discard()  # the barrier may have made Gloo watch a connection again that it has forgotten

    def is_broken(self) -> bool:
        return self._connections.broken()


class Gloo(Backend):
    name = "gloo"
    adds_up_on_host = True

    def install(self, host: Host) -> None:
        class Communicating(GlooCommunicator):
            def __init__(
                self,
                store: Store,
                rank: int,
                size: int,
                timeout: timedelta,
                devices: list[Any] | None = None,
                enable_reconfigure: bool = False,
            ) -> None:  # torch passes the last one from 2.14 on
                if enable_reconfigure:
                    raise UsageError(worker_processes.RECONFIGURE())
                super().__init__(*host.world(store, rank, size), timeout, own_port=host.own_port, devices=devices)
                host.keep(self)  # type: ignore[arg-type]

        self._class = Communicating
        patches.put(distributed_c10d, "ProcessGroupGloo", Communicating, CONNECTED_AGAIN)

    def rejoins(self) -> bool:
        return rejoining.available()

    def connect(self, store: Store, rank: int, size: int, last: Communicator, inherits: bool) -> Communicator:
        options = last.options  # type: ignore[attr-defined]
        # Not what belongs to a call that was abandoned: Gloo's devices remember the peers that they were connecting, and a freed one is not
        # forgotten.
        made: Any
        if self.rejoins():
            if inherits and isinstance(last, GlooCommunicator):
                made = last
            else:
                last.abort()  # it may have been connected nevertheless
                made = self._class(HashStore(), 0, 1, options._timeout)
            made.rejoin(store, rank, size)
        else:
            made = self._class(store, rank, size, options._timeout, options._devices if inherits else None)
        made.options.global_ranks_in_group = options.global_ranks_in_group
        made.options.group_name = options.group_name
        if not rejoining.KNOWN:  # newer ones begin to count from 0
            made._set_sequence_number_for_group()
        return made  # type: ignore[no-any-return]

    def waker(self, closed: Callable[[], bool]) -> gloo_waits.GlooWaker:
        return gloo_waits.GlooWaker(closed)

    def waits(self, still: float = 0.0, since: int = 0) -> int:
        return gloo_waits.count()
