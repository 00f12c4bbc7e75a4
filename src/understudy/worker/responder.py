"""What the control thread does for a runtime, while the main thread may be blocked anywhere."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

from understudy.core.commands import Abort
from understudy.core.events import Event, Quiesced
from understudy.core.model import Position, Stand
from understudy.links.page import UNKNOWN
from understudy.worker.codec import encode
from understudy.worker.errors import GenerationAborted, PeerLost
from understudy.worker.rendezvous import Rendezvous

if TYPE_CHECKING:
    from understudy.worker.runtime import Runtime


class Answers:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._published: tuple[int, Collection[int]] = (-1, ())  # of which ranks, in the newest generation that asked
        self._wanted: deque[tuple[int, str]] = deque()  # generations and stores in which newcomers of this very rank ask what it holds

    def break_communicators(self, abort: Abort) -> None:
        """Wakes the main thread from whatever collective, hand-over or meeting it is blocked in."""
        runtime = self._runtime
        runtime.waker.start()
        peers, meeting = runtime.peers, runtime.meeting
        if peers is not None:
            peers.abort()
        if meeting is not None and meeting.generation < abort.generation:
            meeting.close()
        runtime.groups.abort()

    def called(self) -> None:
        """Wakes the main thread if it still waits for the record of the set-up in a generation that may be over."""
        meeting, newest = self._runtime.meeting, self._runtime.control.generation
        if meeting is not None and meeting.generation < newest:
            meeting.close()

    def publish(self, generation: int, store: str, ranks: tuple[int, ...]) -> None:
        """Puts the set-up records of `ranks` that this worker holds where the newcomers look for them.

        On a thread of its own, since connecting to a store may block. What this rank itself holds, only its main thread can say
        (`describe`).
        """
        if self._runtime.rank in ranks:
            self._wanted.append((generation, store))
            if self._runtime.finished:
                self.describe()
        records = {rank: record for rank in ranks if (record := self._runtime.shelf.setup(rank)) is not None}
        self._published = generation, records.keys()
        if records:
            named = {f"setup/{rank}": record for rank, record in records.items()}
            threading.Thread(target=self._put, args=(generation, store, named), daemon=True).start()

    def publish_rest(self, abort: Abort) -> None:
        """When this worker has come to rest: what it was about to receive when it was called, and has got since."""
        generation, published = self._published
        rest = [rank for rank in abort.lost if generation != abort.generation or rank not in published]
        if any(self._runtime.shelf.setup(rank) is not None for rank in rest):
            self.publish(abort.generation, abort.store, tuple(rest))

    def describe(self) -> None:
        """Between two transactions: tells a newcomer that is getting ready to take this rank what memory it will need."""
        while self._wanted:
            generation, store = self._wanted.popleft()
            described = {f"memory/{self._runtime.rank}": encode(self._runtime.missing.describe())}
            threading.Thread(target=self._put, args=(generation, store, described), daemon=True).start()

    def _put(self, generation: int, store: str, named: dict[str, bytes]) -> None:
        try:
            meeting = Rendezvous(store, generation, lambda: self._runtime.superseded(generation))
            for key, value in named.items():
                meeting.put(key, value)
        except GenerationAborted:
            return  # the newer generation has another store
        except PeerLost as error:
            if generation != self._runtime.generation:  # else it was for a spare that is prepared, and nobody waits for that
                self._runtime.report_broken(generation, str(error))

    def collectives(self) -> int:
        return max(0, self._runtime.groups.collectives() - self._runtime.collectives_at_recovery)

    def waits(self) -> int:
        """As `Responder.waits`: those for Gloo, and those of the main thread for what other workers' runtimes send."""
        runtime = self._runtime
        gloo, peers = runtime.groups.waits(), runtime.peers
        return gloo if gloo == UNKNOWN else gloo + (peers is not None and peers.waiting)

    def answers_alone(self, abort: Abort) -> Event | None:
        """While the script sets up, nobody has voted for anything: no need to wait for the main thread to say so."""
        runtime = self._runtime
        if runtime.recorder is None:
            return None
        return Quiesced(runtime.control.worker, abort.generation, Position(-1, Stand.RUNNING), (), 0)
