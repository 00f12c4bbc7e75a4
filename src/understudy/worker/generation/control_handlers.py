"""Handlers that the control thread calls, while the main thread may be blocked anywhere."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection

from understudy.common.page_view import UNKNOWN
from understudy.core.commands import Abort
from understudy.core.events import Event, Quiesced
from understudy.core.model import Position, VotePhase
from understudy.worker.collectives.device_times import DeviceTimes
from understudy.worker.encoding.messages import pack
from understudy.worker.errors import GenerationAborted, PeerLost
from understudy.worker.generation.membership import Membership
from understudy.worker.process.own_time import main_thread_runs
from understudy.worker.progress import Progress
from understudy.worker.state.preallocation import Preallocation
from understudy.worker.transport.rendezvous import Rendezvous


class ControlHandlers:
    """Implements `control.Handlers`."""

    def __init__(self, progress: Progress, membership: Membership, preallocation: Preallocation, times: DeviceTimes) -> None:
        self._progress = progress
        self._membership = membership
        self._preallocation = preallocation
        self._times = times
        self.in_setup = False  # the script sets up: no rank has voted for anything
        self._published: tuple[int, Collection[int]] = (-1, ())  # of which ranks, in the newest generation that asked
        self._wanted: deque[tuple[int, str]] = deque()  # generations and stores in which newcomers of this very rank ask what memory it has

    def break_communicators(self, abort: Abort) -> None:
        """Wake the main thread from the collective, hand-over or meeting in which it is blocked."""
        membership = self._membership
        membership.groups.wake()
        peers, meeting = membership.peers, membership.meeting
        if peers is not None:
            peers.abort()
        for one in [*([meeting] if meeting is not None else []), *membership.more_meetings]:
            if one.generation < abort.generation:
                one.close()
        membership.groups.abort()

    def called(self) -> None:
        """Wake the main thread if it still waits for the record of the set-up in a generation that may be over."""
        meeting, newest = self._membership.meeting, self._membership.control.generation
        if meeting is not None and meeting.generation < newest:
            meeting.close()

    def publish(self, generation: int, store: str, ranks: tuple[int, ...]) -> None:
        """Publish the set-up records of `ranks` that this worker keeps, where the newcomers look for them.

        On a separate thread, since connecting to a store may block. The rank's own record is published by its main thread (`describe`).
        """
        if self._progress.rank in ranks:
            self._wanted.append((generation, store))
            if self._progress.finished:
                self.describe()
        records = {rank: record for rank in ranks if (record := self._membership.store.setup(rank)) is not None}
        self._published = generation, records.keys()
        if records:
            named = {f"setup/{rank}": record for rank, record in records.items()}
            threading.Thread(target=self._put, args=(generation, store, named), daemon=True).start()

    def publish_rest(self, abort: Abort) -> None:
        """Publish, after this worker has stopped, the records that it was about to receive when it was called, and has received since."""
        generation, published = self._published
        rest = [rank for rank in abort.lost if generation != abort.generation or rank not in published]
        if any(self._membership.store.setup(rank) is not None for rank in rest):
            self.publish(abort.generation, abort.store, tuple(rest))

    def describe(self) -> None:
        """Describe, between two transactions, the memory of this rank to a newcomer that prepares to take it."""
        while self._wanted:
            generation, store = self._wanted.popleft()
            described = {f"memory/{self._progress.rank}": pack(self._preallocation.describe())}
            threading.Thread(target=self._put, args=(generation, store, described), daemon=True).start()

    def _put(self, generation: int, store: str, named: dict[str, bytes]) -> None:
        try:
            meeting = Rendezvous(store, generation, lambda: self._membership.superseded(generation))
            for key, value in named.items():
                meeting.put(key, value)
        except GenerationAborted:
            return  # the newer generation has another store
        except PeerLost as error:
            if generation != self._progress.generation:  # else it was for a spare that is prepared, and no rank waits for that
                self._membership.report_broken(generation, str(error))

    def collectives(self) -> int:
        return max(0, self._membership.groups.collectives() - self._membership.collectives_at_attach)

    def waits(self, still: float = 0.0) -> int:
        """Count waits as `Handlers.waits`: those in the script's groups, and those for other workers' runtimes."""
        groups, peers = self._membership.groups.waits(still), self._membership.peers
        held = sum(meeting.waiting for meeting in list(self._membership.more_meetings))
        return groups if groups == UNKNOWN else groups + (peers is not None and peers.waiting) + held

    def at_work(self) -> bool | None:
        """Return as `Handlers.at_work`."""
        try:
            if main_thread_runs():
                return True
        except OSError:
            return None
        waits = self.waits()
        return None if waits == UNKNOWN else waits == 0

    def own_share(self) -> float | None:
        """Return as `Handlers.own_share`."""
        return self._times.take()

    def answers_alone(self, abort: Abort) -> Event | None:
        """Answer for the main thread while the script sets up: no rank has voted for anything, so there is no need to wait for it."""
        if not self.in_setup:
            return None
        return Quiesced(self._membership.control.worker, abort.generation, Position(-1, VotePhase.RUNNING), (), 0)
