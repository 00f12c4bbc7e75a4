"""A worker's membership in generations: whether its own is over, and the way into the next one.

The control thread learns of a new generation first and breaks the communicators. The main thread notices it here: by a collective that
fails, or by a check (`announced`). It then *quiesces*: releases the old groups, reports how far it is, and waits for the decision,
which is `pending` until it is attached (`attachment`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import torch.distributed as dist

from understudy.common.page_view import Activity
from understudy.core.buddies import Place
from understudy.core.commands import Abort, Recover
from understudy.core.events import CommunicationBroken, PhaseDone, Quiesced
from understudy.messages import transactions, worker_processes
from understudy.worker import hooks
from understudy.worker.data.loaders import leave_if_data_process_lost
from understudy.worker.devices.broken_device import leave_if_device_failed
from understudy.worker.encoding.messages import BuddyCopy
from understudy.worker.errors import GenerationAborted, PeerLost, UnderstudyError
from understudy.worker.generation.rank_state import RankState
from understudy.worker.process.control import Announcement, Control
from understudy.worker.progress import Progress
from understudy.worker.state.buddy_store import BuddyStore, StoredBuddyCopy
from understudy.worker.state.rank_local import seal
from understudy.worker.transport.channel import Channel
from understudy.worker.transport.groups import Groups
from understudy.worker.transport.peers import Peers
from understudy.worker.transport.rendezvous import Rendezvous, StoreServer

NOT_LET_GO = 72  # exit code
EXPLANATION = 40.0  # seconds that a failed script waits for the notice that explains the failure


class Membership:
    def __init__(self, control: Control, server: StoreServer, progress: Progress, groups: Groups, rank_state: RankState) -> None:
        self.control = control
        self.progress = progress
        self.server = server
        self.groups = groups
        self._rank_state = rank_state
        self.store = BuddyStore()
        self.record = b""  # what this rank's set-up received from others; on a newcomer the record that it was given
        self.peers: Peers | None = None
        self.channel: Channel | None = None  # over `peers`; a leaver has none
        self.broken: int | None = None  # a generation whose end was noticed where nothing could be redone: the next begin waits for it
        self.unshared = False  # a recovery was completed, and copies are not handed over again yet
        self.meeting: Rendezvous | None = None
        self.more_meetings: list[Rendezvous] = []  # more clients of the present generation's store, for threads that wait
        self.pending: Recover | None = None  # decided, not yet attached
        self.pause_agreed = -1  # the generation for which all ranks have agreed, in a vote, to pause
        self.collectives_at_attach = 0  # groups that were connected again count from the same number on every rank, but not from 0

    @property
    def newest(self) -> int:
        """Return the newest generation that this worker is attached to, or is about to be."""
        return max(self.progress.generation, self.pending.generation if self.pending else -1)

    def meet(self, store: str, generation: int) -> Rendezvous:
        """Connect to the store of `generation`. Raises `GenerationAborted` or `PeerLost`."""
        self.groups.stop_waking()  # nothing of the old communicators is left here
        self.meeting = self._client(store, generation)
        return self.meeting

    def open_another_store(self, recovery: Recover, prefix: str) -> Rendezvous:
        """Return another client of the store of a generation to which this worker is attached. `prefix`: of its keys. Any thread. Raises as
        `meet`.
        """
        meeting = self._client(recovery.store, recovery.generation, prefix)
        self.more_meetings.append(meeting)
        if self.superseded(recovery.generation):  # an abort from now on finds it
            raise GenerationAborted(f"generation {recovery.generation} ended while this worker connected")
        return meeting

    def _client(self, store: str, generation: int, prefix: str | None = None) -> Rendezvous:
        made: list[Rendezvous] = []

        def make() -> None:
            made.append(Rendezvous(store, generation, lambda: self.superseded(generation), self.server.port, prefix))

        self.interruptible(generation, make)
        return made[0]

    def interruptible(self, generation: int, work: Callable[[], None]) -> None:
        """Run `work` as `in_background`, and wait for it."""
        self.in_background(generation, work)()

    def in_background(self, generation: int, work: Callable[[], None]) -> Callable[[], None]:
        """Begin `work` on a thread that is abandoned when the generation ends: torch waits for a lost peer until a timeout.

        Returns a function that waits for its end. That raises `GenerationAborted`, what Understudy's own code raises in `work`, and
        `PeerLost` for anything else.
        """
        done = threading.Event()
        failure: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:  # handed to the main thread
                failure.append(error)
            finally:
                done.set()
                self.control.wake()

        def wait() -> None:
            self.control.wait_for(lambda: done.is_set() or self.superseded(generation))
            if self.superseded(generation):
                raise GenerationAborted(f"generation {generation} ended while this worker connected")
            if failure:
                if isinstance(failure[0], UnderstudyError | GenerationAborted | PeerLost):
                    raise failure[0]
                raise PeerLost(worker_processes.NOT_CONNECTED(generation=generation, error=failure[0])) from failure[0]

        threading.Thread(target=run, name="understudy-connect", daemon=True).start()
        return wait

    def superseded(self, generation: int) -> bool:
        """Return whether an abort has ended `generation`."""
        announcement = self.control.announcement
        return isinstance(announcement, Abort) and announcement.generation > generation

    def open_channel(self, peers: Peers, places: list[Place]) -> None:
        """Open the channel of the generation. `places`: of the workers of all ranks."""
        self.channel = Channel(peers, self.progress.rank, places)

    def hand_over(self, own: BuddyCopy) -> None:
        """Give this rank's copy to its buddies, and keep those of the ranks whose buddy it is. Raises what the channel raises."""
        channel = self.channel
        assert channel is not None
        for rank, received in channel.hand_over(seal(own)).items():
            self.store.put(rank, StoredBuddyCopy(own.transaction, received))

    def aborted(self) -> bool:
        return self.superseded(self.newest)

    def announced(self) -> bool:
        if self.broken == self.newest:
            return True  # it will be, or is by now
        announcement = self.control.announcement
        if announcement is None or announcement.generation <= self.newest:
            return False
        return isinstance(announcement, Abort) or announcement.generation == self.pause_agreed

    def is_failure(self, error: BaseException) -> bool:
        """Return whether `error` comes from the loss of a peer or a link, rather than from the user's code."""
        leave_if_data_process_lost(error)
        self.leave_if_device_failed(error)
        if isinstance(error, UnderstudyError):
            return False
        if isinstance(error, GenerationAborted) or self.aborted():
            return True
        if isinstance(error, PeerLost) or self.groups.is_failure(error):
            self.report_broken(self.newest, str(error))
            return True
        return False

    def leave_if_device_failed(self, error: BaseException) -> None:
        """End this worker if `error` reports that its own device has failed. Its state goes to no other rank."""
        leave_if_device_failed(error, self.control, self.progress, self.aborted)

    def quiesce_after(self, error: BaseException) -> Recover:
        """Quiesce from the handler of a failure. Raises `error` itself if it is the user's."""
        if not self.is_failure(error):
            raise error
        return self.quiesce()

    def quiesce(self) -> Recover:
        """Wait for the announcement, release the old generation, report the position, and wait for the decision."""
        hooks.fire("quiesce")
        self.control.page.enter(Activity.RECOVERING, self.progress.transaction)
        newest = self.newest
        while True:
            self.control.wait_for(lambda newest=newest: self._next_announcement(newest) is not None)  # type: ignore[misc]
            announcement = self._next_announcement(newest)
            assert announcement is not None
            newest = announcement.generation
            self.let_go()
            self.control.send(Quiesced(self.control.worker, newest, self.progress.position, self.store.index(), self.progress.step))
            if isinstance(announcement, Abort) and self.control.handlers is not None:
                self.control.handlers.publish_rest(announcement)
            self._rank_state.use_wait(self.progress.phase, lambda newest=newest: self._decided(newest))  # type: ignore[misc]
            self.control.wait_for(lambda newest=newest: self._decided(newest))  # type: ignore[misc]
            recovery = self.control.recovery
            if recovery is not None and recovery.generation == newest and not self.superseded(newest):
                self.pending = recovery
                self.store.drop(recovery.start)  # of attempts that do not count
                return recovery

    def _next_announcement(self, newest: int) -> Announcement | None:
        announcement = self.control.announcement
        if announcement is None or announcement.generation <= newest:
            return None
        agreed = isinstance(announcement, Abort) or announcement.generation == self.pause_agreed
        return announcement if agreed else None

    def _decided(self, newest: int) -> bool:
        recovery = self.control.recovery
        return self.superseded(newest) or (recovery is not None and recovery.generation >= newest)

    def is_caused_by_loss(self, error: BaseException) -> bool:
        """Return, for an error that ended the script in its set-up, whether a loss caused it and this worker will be ended soon."""
        if self.aborted():
            return True  # whatever the script does: its last results may be anything
        return isinstance(error, RuntimeError) and (self.is_failure(error) or isinstance(error, dist.DistError))

    def explain(self, error: BaseException) -> str:
        """Return the cause of an error that ended the script, or "" if it is the user's own."""
        if isinstance(error, UnderstudyError):
            return ""
        doomed = self.aborted() and self.groups.woken() > 0  # then it may have gone on with any content
        if not doomed and (not isinstance(error, RuntimeError) or not (self.is_failure(error) or self.pending is not None)):
            return ""
        newest = self.progress.generation
        self.control.wait_for(lambda: self.superseded(newest) or self.pending is not None, EXPLANATION)
        announcement = self.control.announcement
        reason = announcement.reason if isinstance(announcement, Abort) else "a connection to a peer broke"
        return transactions.FAILED_OUTSIDE(rank=self.progress.rank, reason=reason)

    def phase_of(self, generation: int, name: str, started: float, moved: int = 0) -> None:
        self.control.send(PhaseDone(self.control.worker, generation, name, started, time.time() - started, moved))

    def report_broken(self, generation: int, detail: str) -> None:
        self.control.send(CommunicationBroken(self.control.worker, generation, detail[:500]))

    def let_go(self) -> None:
        """Release what was attached of a generation that is over."""
        self.groups.abort()
        try:
            self.groups.drain()
        except Exception as error:
            self.leave_if_device_failed(error)
            print(f"understudy: {worker_processes.NOT_LET_GO(error=error)}", file=sys.stderr, flush=True)
            os._exit(NOT_LET_GO)
        if self.channel is not None:
            self.store.put_trails(self.channel.take_trails())
            self.store.put_results(self.channel.results)
        if self.peers is not None:
            self.peers.close()
        self.peers = self.channel = None
        self.groups.stop_waking()
