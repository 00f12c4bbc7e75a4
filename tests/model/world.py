"""The world around the machine, as plain values: workers, their data plane, agents and links. The rest of this folder makes it move.

A worker is its position in `understudy.worker`. Its computation is not modelled; tests with real processes show that it is bitwise the
same. A transaction is a number, and the state of a rank is how many it has applied: what a recovery must get right is which rank applies
which one when, and which rank gets whose state. The script's set-up is transaction -1.

Links deliver in order, at any later time, unless a fault says otherwise (`faults.py`). A command for a node that is not connected is
lost; an agent repeats what it knows when it connects again (`agent/worker.py`). The data plane between two nodes is there unless one of
them is cut off.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from understudy.core import events
from understudy.core.model import VotePhase

Order = tuple[Any, ...]  # a command on its way, without the fields that do not matter here


class Mode(IntEnum):
    SPARE = 0  # warm, without a rank
    SETUP = 1  # a newcomer runs the script up to the job's place
    READY = 2  # ... is there, and waits for the decision
    IDLE = 3  # at the begin of transaction t
    RUN = 4  # in it, before its vote
    VOTING = 5  # has handed its copy over, and waits for those that it keeps
    AGREED = 6  # has them, and has sent them to all
    APPLY = 7  # knows that all have: nothing can take the transaction back
    WAIT = 8  # has let go of a generation that is over, and waits for the decision
    PUBLISHED = 9  # at the next begin, in the store of the new generation
    CONNECTED = 10  # all members are; a donor has sent its state
    SHARE = 11  # every newcomer is verified; copies are handed over again
    DONE = 12  # the script has ended
    GONE = 13
    STARTING = 14
    PREPARING = 15  # a spare runs the set-up of a rank that is not lost
    PREPARED = 16
    REHEARSING = 17  # a spare in a drill computes a step of its rank
    DRILLED = 18  # ... has, and waits for its end

    __hash__ = int.__hash__  # the one of enumerations is slow


class Worker(NamedTuple):
    name: str
    node: int
    mode: Mode = Mode.SPARE
    rank: int = -1
    generation: int = -1  # attached to
    t: int = 0  # the current or next transaction
    applied: int = 0  # how many its state has seen
    stand: VotePhase = VotePhase.RUNNING  # while it waits
    pending: Order | None = None  # the decision that it is carrying out
    abort: int = -1  # the newest that it has heard of
    called: Order | None = None  # that abort
    pause: int = -1  # the same, of a pause
    recover: Order | None = None  # the newest decision that it has heard of
    heard: int = -1  # the newest generation that any command named
    answered: int = -1  # the newest generation to which it has reported its position
    answer: events.Quiesced | None = None  # its answer
    pause_agreed: int = -1
    reported: int = -1  # the newest generation in which a commit was reported
    newcomer: bool = False  # its state is not proven yet
    came: bool = False  # it took its rank in the middle of the job
    released: bool = False
    broken: bool = False  # a connection to a peer broke: it waits to hear why
    prepared: int = -1  # the rank as which it runs the set-up ahead, or has
    drill: int = 0  # the number of the newest drill that it was told to start
    broken_off: int = 0  # the number of the newest drill that it has broken off
    refused: bool = False  # its agent could not start it
    forgotten: bool = False  # its host was rebooted, and no process there knows of it
    shelf: frozenset[tuple[int, int]] = frozenset()  # copies that it keeps: rank, transaction
    up: tuple[events.Event, ...] = ()
    down: tuple[Order, ...] = ()
    entered: int = -1  # the generation that the agent's memory of it is of
    said: tuple[events.Event, ...] = ()  # that memory
    lost: events.WorkerLost | None = None  # its agent's report about its end

    @property
    def alive(self) -> bool:
        return self.mode is not Mode.GONE

    @property
    def newest(self) -> int:
        """The generation that it is in, or on its way to."""
        return max(self.generation, self.pending[1]) if self.pending else self.generation

    @property
    def aborted(self) -> bool:
        return self.abort > self.newest


class World(NamedTuple):
    workers: tuple[Worker, ...]
    linked: tuple[bool, ...]  # each node's agent with the orchestrator
    cut: tuple[bool, ...]  # a node from everything else
    away: tuple[bool, ...]  # a node's agent has ended, and with it all its workers
    handed: frozenset[tuple[int, int, int, int]] = frozenset()  # generation, transaction, rank, node: the rank's copy is on its way
    agreed: frozenset[tuple[int, int, int, int, int]] = frozenset()  # the same, and the pause that the rank has heard of
    met: frozenset[tuple[str, int, int, int]] = frozenset()  # messages between members: which one, generation, member, its node
    passed: int = -1  # the highest transaction whose vote any rank has ever passed
    decisions: frozenset[tuple[int, int]] = frozenset()  # every generation that was decided, and the transaction with which it starts
    anew: int = 0  # the generation in which the ranks were started last: actions of workers of an older one will not be seen
    claims: frozenset[tuple[int, int]] = frozenset()  # the scheduler's requests: number, and the node that serves it or -1
    records: frozenset[tuple[int, str, int]] = frozenset()  # generation, store, rank: the record of the rank's set-up lies there

    def of(self, name: str) -> Worker:
        return next(worker for worker in self.workers if worker.name == name)

    def put(self, worker: Worker) -> World:
        return self._replace(workers=tuple(worker if w.name == worker.name else w for w in self.workers))

    def put_all(self, node: int, **changes: Any) -> World:
        """The same change to all workers of a node."""
        return self._replace(workers=tuple(w._replace(**changes) if w.node == node else w for w in self.workers))


class Wrong(AssertionError):
    """Something that must never be."""


class Shape(NamedTuple):
    """What stays the same: ranks, transactions, whose buddies are whose, whether the script's set-up is gone through."""

    ranks: int
    transactions: int
    keepers: tuple[tuple[int, ...], ...]  # of each rank's copy
    setup: bool = False

    def wards(self, rank: int) -> list[int]:
        return [other for other in range(self.ranks) if rank in self.keepers[other]]


def flagged(flags: tuple[bool, ...], node: int, flag: bool) -> tuple[bool, ...]:
    return tuple(flag if n == node else was for n, was in enumerate(flags))
