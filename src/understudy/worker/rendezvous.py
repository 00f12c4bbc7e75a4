"""The store in which a generation meets: a TCPStore that every worker serves, of which each generation uses one.

A worker serves its store from the start, so that the address is known before it is needed. Keys are prefixed with the
generation. A store is a throw-away: if its host is lost, so is the generation that meets there, and the next one meets
elsewhere. A blocked TCPStore call cannot be interrupted; an abort breaks it by shutting its socket (`close`).
"""

from __future__ import annotations

import os
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, TCPStore

from understudy.worker.errors import GenerationAborted, PeerLost
from understudy.worker.sockets import STORES, Connections

FOREVER = timedelta(days=30)  # an abort ends a wait, not a timeout
CONNECT = timedelta(seconds=30)

# by address: two clients of one store must not take each other's sockets for theirs
_connecting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class StoreServer:
    """This worker's own store. Listens only on `host`."""

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((host, 0))
        self.port: int = listener.getsockname()[1]
        self.address = f"{host}:{self.port}"
        self._store = TCPStore(host, self.port, None, True, wait_for_workers=False, master_listen_fd=listener.detach(), timeout=CONNECT)


class Rendezvous:
    """A client of one generation's store. `aborted` says whether the generation is over.

    Who announces the end of the generation must first make `aborted` true, and then call `close`.
    """

    def __init__(self, address: str, generation: int, aborted: Callable[[], bool], own_port: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.generation = generation
        self.over = aborted
        there = {(str(found[4][0]), int(port)) for found in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)}
        STORES.update(there)
        self.connections = Connections(ignore_port=own_port, only=there)
        try:
            with _connecting[address], self.connections.noting():
                self._client = TCPStore(host, int(port), None, False, timeout=CONNECT)
        except RuntimeError as error:
            raise self._lost(f"its store at {address} cannot be reached: {error}") from error
        self._client.set_timeout(FOREVER)  # script groups wait for each other in it
        self.store = PrefixStore(f"g{generation}", self._client)

    def put(self, key: str, value: bytes) -> None:
        """Raises as `get`."""
        try:
            self.store.set(key, value)  # type: ignore[arg-type]
        except RuntimeError as error:
            raise self._lost(f"its store is lost: {error}") from error

    def get(self, key: str, limit: timedelta = FOREVER) -> bytes:
        """Waits for `key`. Raises `GenerationAborted` as soon as the generation is over, and `PeerLost` if the store is lost or the `limit`
        has passed.
        """
        if self.over():
            raise GenerationAborted(f"generation {self.generation} ended while waiting for {key}")
        try:
            self.store.wait([key], limit)
            return bytes(self.store.get(key))
        except RuntimeError as error:
            raise self._lost(f"its store is lost: {error}") from error

    def _lost(self, what: str) -> RuntimeError:
        text = f"generation {self.generation}: {what}"
        return GenerationAborted(text) if self.over() else PeerLost(text)

    def group_prefix(self, name: str) -> PrefixStore:
        return PrefixStore(f"groups/{name}", self.store)

    def close(self) -> None:
        self.connections.shut()


def node_address() -> str:
    """The address at which other workers reach this one; the agent sets it."""
    return os.environ.get("UNDERSTUDY_ADDRESS", "127.0.0.1")
