"""Buddy copies: the rank-local state of a rank, kept in the memory of two others, so that it survives its owner.

A holder keeps the copies of the last two transactions, because a recovery may go back by one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from understudy.core.model import BuddyCopyRef
from understudy.worker.encoding.messages import TRANSACTION


@dataclass(frozen=True)
class StoredBuddyCopy:
    """A copy as it was handed over."""

    transaction: int
    data: bytes


class BuddyStore:
    """The copies that this worker keeps for other ranks, and the records of their set-ups. The control thread reads it too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copies: dict[int, dict[int, StoredBuddyCopy]] = {}
        self._setups: dict[int, bytes] = {}
        self._trails: dict[int, bytes] = {}
        self._results: dict[int, bytes] = {}

    def put(self, rank: int, snapshot: StoredBuddyCopy) -> None:
        with self._lock:
            copies = self._copies.setdefault(rank, {})
            copies[snapshot.transaction] = snapshot
            for old in [t for t in copies if t < snapshot.transaction - 1]:
                del copies[old]

    def drop(self, start: int) -> None:
        """Drop the copies of transaction `start` and later: they belong to an attempt that is redone."""
        with self._lock:
            for copies in self._copies.values():
                for transaction in [t for t in copies if t >= start]:
                    del copies[transaction]

    def put_setup(self, rank: int, record: bytes) -> None:
        with self._lock:
            self._setups[rank] = record

    def setup(self, rank: int) -> bytes | None:
        with self._lock:
            return self._setups.get(rank)

    def get(self, rank: int, transaction: int) -> StoredBuddyCopy | None:
        with self._lock:
            return self._copies.get(rank, {}).get(transaction)

    def put_trails(self, trails: Mapping[int, bytes]) -> None:
        """Keep the trails of a generation that is over (`Channel.take_trails`). Of several attempts at one transaction the first counts."""
        for rank, trail in trails.items():
            known = self._trails.get(rank, b"")
            if known[:TRANSACTION] != trail[:TRANSACTION]:
                self._trails[rank] = trail

    def trail(self, rank: int) -> bytes:
        """Return a rank's trail of its last step; empty if there is none."""
        return self._trails.get(rank, b"")

    def put_results(self, results: Mapping[int, bytes]) -> None:
        """Keep the last results of a generation that is over (`Channel.results`)."""
        self._results.update(results)

    def result(self, rank: int) -> bytes:
        """Return the result that a rank has sent last, an encoded `LastResult`; empty if there is none."""
        return self._results.get(rank, b"")

    def index(self) -> tuple[BuddyCopyRef, ...]:
        with self._lock:
            return tuple(BuddyCopyRef(rank, t) for rank, copies in sorted(self._copies.items()) for t in sorted(copies))
