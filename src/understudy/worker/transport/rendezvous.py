"""The store in which a generation meets: every worker serves a TCPStore, and each generation uses one of them.

A worker serves its store from the start, so that the address is known before it is needed. Keys are prefixed with the generation. A
store is used once: if its host is lost, so is the generation that meets there, and the next one meets in another. A blocked TCPStore
call cannot be interrupted; an abort breaks it by shutting its socket (`close`).

torch's store closes a connection that sends it a value of more than 8 MiB. `Rendezvous.put` therefore cuts a value into parts and
writes under the key itself, as the last thing, which parts there are: a reader that sees the key can read all of it. Parts are named by
the digest of the whole value, so that two that put different values under one key, or one that is lost in between, leave no mixture.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from understudy.messages import worker_processes
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.errors import GenerationAborted, PeerLost
from understudy.worker.transport.sockets import STORES, Connections

PART = 4 << 20  # bytes; torch's store takes 8 MiB at most, name and framing included
_WHOLE, _IN_PARTS = b"\0", b"\1"  # the first byte of the value of a key
_COUNT = 4  # bytes of the number of parts; the name of the parts follows

FOREVER = timedelta(days=30)  # an abort ends a wait, not a timeout
CONNECT = timedelta(seconds=30)

# by address: two clients of one store must not mistake each other's sockets for their own
_connecting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class StoreServer:
    """The store that this worker serves. Listens only on `host`."""

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((host, 0))
        self.port: int = listener.getsockname()[1]
        self.address = f"{host}:{self.port}"
        self._store = TCPStore(host, self.port, None, True, wait_for_workers=False, master_listen_fd=listener.detach(), timeout=CONNECT)


class Door(Store):
    """A store for an owner that keeps one for ever, as a Gloo communicator does, but may use it only while it connects: shut, it keeps no
    connection, and it opens to the store of another generation.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store: Store | None = store

    def open(self, store: Store) -> None:
        self._store = store

    def shut(self) -> None:
        self._store = None

    def _open(self) -> Store:
        store = self._store
        if store is None:
            raise RuntimeError("the store of a generation that is over")
        return store

    def set(self, key: str, value: Any) -> None:
        self._open().set(key, value)

    def get(self, key: str) -> bytes:
        return self._open().get(key)

    def add(self, key: str, value: int) -> int:
        return self._open().add(key, value)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        return self._open().compare_set(key, expected, desired)

    def check(self, keys: list[str]) -> bool:
        return self._open().check(keys)

    def delete_key(self, key: str) -> bool:
        return self._open().delete_key(key)

    def num_keys(self) -> int:
        return self._open().num_keys()

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        store = self._open()
        store.wait(keys) if timeout is None else store.wait(keys, timeout)

    def has_extended_api(self) -> bool:
        return False


class Rendezvous:
    """A client of one generation's store. `aborted`: whether the generation is over.

    The caller that announces the end of the generation must first make `aborted` true, and then call `close`.
    """

    def __init__(
        self, address: str, generation: int, aborted: Callable[[], bool], own_port: int | None = None, prefix: str | None = None
    ) -> None:
        """`prefix`: of its keys, if it is not that of the generation."""
        host, _, port = address.rpartition(":")
        self.generation = generation
        self.over = aborted
        self.waiting = False  # a thread waits for a key; read by another thread
        there = {(str(found[4][0]), int(port)) for found in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)}
        STORES.update(there)
        self.connections = Connections(ignore_port=own_port, only=there)
        try:
            with _connecting[address], self.connections.noting():
                self._client = TCPStore(host, int(port), None, False, timeout=CONNECT)
        except RuntimeError as error:
            raise self._lost(worker_processes.STORE_UNREACHABLE(generation=generation, address=address, error=error)) from error
        self._client.set_timeout(FOREVER)  # script groups wait for each other in it
        self.store = PrefixStore(prefix or f"g{generation}", self._client)

    def put(self, key: str, value: bytes) -> None:
        """Put a value of any size. Raises as `get`."""
        try:
            if len(value) <= PART:
                self._set(key, _WHOLE + value)
                return
            starts = range(0, len(value), PART)
            name = f"{digest_bytes(value):016x}"
            for number, start in enumerate(starts):
                self._set(_part(key, name, number), value[start : start + PART])
            self._set(key, _IN_PARTS + len(starts).to_bytes(_COUNT, "little") + name.encode())
        except RuntimeError as error:
            raise self._lost(worker_processes.STORE_LOST(generation=self.generation, error=error)) from error

    def get(self, key: str, limit: timedelta = FOREVER) -> bytes:
        """Wait for `key`. Raises `GenerationAborted` as soon as the generation is over, and `PeerLost` if the store is lost or the `limit`
        has passed.
        """
        if self.over():
            raise GenerationAborted(f"generation {self.generation} ended while waiting for {key}")
        try:
            self.waiting = True
            self.store.wait([key], limit)
            self.waiting = False
            found = bytes(self.store.get(key))
            if found[:1] == _WHOLE:
                return found[1:]
            count, name = int.from_bytes(found[1 : 1 + _COUNT], "little"), found[1 + _COUNT :].decode()
            return b"".join(self.store.get(_part(key, name, number)) for number in range(count))
        except RuntimeError as error:
            raise self._lost(worker_processes.STORE_LOST(generation=self.generation, error=error)) from error

    def has(self, key: str) -> bool:
        """Return whether `key` exists by now. Raises as `get`."""
        return bool(self._ask(key, lambda: self.store.check([key])))

    def count(self, key: str) -> int:
        """Return how many have called this for `key`, with this call. Raises as `get`."""
        return int(self._ask(key, lambda: self.store.add(key, 1)))

    def claim(self, key: str, value: bytes) -> bytes:
        """Return the value of `key`: that of the first caller that claims it. Raises as `get`."""
        found = self._ask(key, lambda: self.store.compare_set(key, "", _WHOLE + value))  # type: ignore[arg-type]
        return bytes(found)[1:]

    def get_all(self, keys: list[str]) -> list[bytes]:
        """Return the values of existing keys, of at most `PART` bytes each. Raises as `get`."""
        return [bytes(found)[1:] for found in self._ask(keys[0], lambda: self.store.multi_get(keys))]

    def _ask(self, key: str, ask: Callable[[], Any]) -> Any:
        if self.over():
            raise GenerationAborted(f"generation {self.generation} ended while requesting {key}")
        try:
            return ask()
        except RuntimeError as error:
            raise self._lost(worker_processes.STORE_LOST(generation=self.generation, error=error)) from error

    def _set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)  # type: ignore[arg-type]

    def _lost(self, text: str) -> RuntimeError:
        return GenerationAborted(text) if self.over() else PeerLost(text)

    def group_prefix(self, name: str) -> PrefixStore:
        return PrefixStore(f"groups/{name}", self.store)

    def close(self) -> None:
        self.connections.shut()


def _part(key: str, name: str, number: int) -> str:
    return f"{key}/part/{name}/{number}"


def node_address() -> str:
    """Return the address at which other workers reach this one; the agent sets it."""
    return os.environ.get("UNDERSTUDY_ADDRESS", "127.0.0.1")
