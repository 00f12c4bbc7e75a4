"""One member: Raft with a clock, a disk and a network. Everything except the writing happens on one asyncio loop.

In each turn it handles all messages that have arrived, writes the results, sends its messages, and applies committed entries. The next turn
begins when all of this is done, so nothing is sent that is not on the disk.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from understudy.messages import quorums
from understudy.orchestrator.quorum.memory import NOTHING, Known, Memory
from understudy.orchestrator.quorum.raft import HEARTBEAT, Contradicted, Raft, RaftMessage, Role, Step
from understudy.orchestrator.quorum.roster import MemberHello, Roster
from understudy.orchestrator.quorum.storage import Storage
from understudy.orchestrator.quorum.transport import Dial

TURN = 0.05  # seconds between two checks of the clock
GREET = 0.3  # seconds between two greetings while there is no roster
INBOX = 1000  # messages that wait to be handled; more are dropped
WATCH = 0.1  # seconds between two checks of whether this one still leads
AGAIN = 1.0  # seconds between two attempts to write


class Member:
    def __init__(
        self,
        number: int,
        urls: Sequence[str],
        storage: Storage,
        token: str,
        tls: ssl.SSLContext | None,
        tell: Callable[[str], None],
        apply: Callable[[list[str]], None],
    ) -> None:
        """Create a member. `urls`: of all members, by number.

        `apply`: gets the text of every entry that is committed, in order, once in the life of this process.
        """
        loop = asyncio.get_running_loop()
        self.elected: asyncio.Future[int] = loop.create_future()  # the term, when this one leads and has everything that was ever committed
        self.deposed: Callable[[str], None] = lambda why: None  # called when it led and no longer does
        self._number = number
        self._urls = list(urls)
        self._storage = storage
        self._tell = tell
        self._apply = apply
        self._memory = Memory(number, len(urls), storage.acknowledged)
        self._forgot = storage.forgot  # why this one takes no part any more
        self._sharing: set[int] = set()  # those that understand knowledge about the others; an older version would disconnect
        self._shared = 0.0  # CLOCK_MONOTONIC, when knowledge about the others was last sent to them
        self._roster = Roster(number, len(urls), storage.identity, storage.roster)
        self._raft: Raft | None = None  # None without a roster
        self._dials = {other: Dial(other, url, token, tls, self, tell) for other, url in enumerate(urls) if other != number}
        self._heard = dict.fromkeys(self._dials, time.time())
        self._inbox: list[tuple[int, RaftMessage | Known]] = []
        self._texts: list[str] = []
        self._proposed = 0
        self._marks: list[tuple[int, Callable[[], None]]] = []
        self._applied = 0
        self._first = 0  # the index of the last entry that was not proposed here
        self._wake = asyncio.Event()
        self._new_roster = False  # known, and not on the disk yet
        self._reported: set[str] = set()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="quorum")

    # -- for the one that leads -----------------------------------------------------------------------------------------

    def guard(self) -> None:
        """Return only while this one leads, and no other can."""
        if not self._sure():
            self.deposed("no majority of the orchestrators has answered for too long, or this process was stopped")

    async def watch(self) -> None:
        """Check the leadership even while nothing is decided, until cancelled.

        Agents that stay connected to a former leader (its disk hangs) would be missing at the new one.
        """
        while True:
            await asyncio.sleep(WATCH)
            if not self._sure():
                await asyncio.sleep(WATCH)  # answers may have come while the loop was busy
                self.guard()

    def _sure(self) -> bool:
        return self._raft is not None and self._raft.leads() and time.monotonic() <= self._raft.good_until()

    def propose(self, text: str) -> None:
        self._texts.append(text)
        self._proposed += 1
        self._wake.set()

    def mark(self, reached: Callable[[], None]) -> None:
        """Call `reached` when a majority has everything that was proposed so far on its disks."""
        self._marks.append((self._proposed, reached))
        self._wake.set()

    def silent_since(self, number: int, seconds: float) -> float | None:
        """Return the unix time of this member's last message if it is more than `seconds` ago; None also if it does not exist."""
        heard = self._heard.get(number, time.time())
        return heard if time.time() - heard > seconds else None

    def known_by_all(self, since: float) -> bool:
        """Return whether every other member has heard from this one since then (CLOCK_MONOTONIC)."""
        return self._raft is not None and self._raft.role is Role.LEADER and self._raft.known_by(since)

    # -- for the connections --------------------------------------------------------------------------------------------

    def hello(self, to: int) -> MemberHello:
        known = self._memory.of(to) if to in self._dials else NOTHING
        if self._new_roster:
            return MemberHello(self._number, self._roster.identity, (), known)
        return replace(self._roster.hello(), acknowledged=known, forgot=bool(self._forgot))

    def greeted(self, hello: MemberHello) -> None:
        if hello.member not in self._dials:
            return
        (self._sharing.discard if hello.acknowledged is None else self._sharing.add)(hello.member)
        if self._new_roster:
            return
        if self._roster.hear(hello):
            self._new_roster = True
            self._wake.set()
        elif self._roster.non_member:
            self._tell_once(quorums.MEMBER_REPLACED())
        elif self._roster.refuses(hello):
            self._tell_once(quorums.MEMBER_UNKNOWN(url=self._urls[hello.member]))
        elif self._roster.accepts(hello):
            self._compare(hello)

    def _compare(self, hello: MemberHello) -> None:
        """Compare what the other member knows of this one with the state here, before any of its messages is handled."""
        if hello.forgot:
            self._tell_once(quorums.MEMBER_FORGOT(url=self._urls[hello.member]))
            if self._raft is not None:
                self._raft.discount(hello.member)
        term, log = (self._raft.term, self._raft.log) if self._raft is not None else (self._storage.hard_state[0], self._storage.log)
        if hello.acknowledged is not None and hello.acknowledged.lacking(term, log):
            self._take_no_part(quorums.FORGOT(url=self._urls[hello.member]))

    def _takes_part(self) -> bool:
        return not self._forgot

    def _take_no_part(self, why: str) -> None:
        if not self._forgot:
            self._forgot = why
            self._tell_once(why)
            self._wake.set()

    def accepts(self, hello: MemberHello) -> bool:
        if self._new_roster or self._forgot or hello.forgot:
            return False
        return hello.member in self._dials and self._roster.accepts(hello)

    def receive(self, sender: int, message: RaftMessage | Known) -> None:
        self._heard[sender] = time.time()
        if len(self._inbox) < INBOX:
            self._inbox.append((sender, message))
            self._wake.set()

    def leading(self) -> str:
        leader = self._raft.leader if self._raft is not None else None
        return self._urls[leader] if leader is not None and leader != self._number else ""

    # -- its life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled."""
        dialling = [asyncio.create_task(dial.run()) for dial in self._dials.values()]
        try:
            while not self._roster.names or self._new_roster:
                await self._next_turn(GREET)
                if self._new_roster:
                    await self._write(lambda: self._storage.enrol(self._roster.names))
                    self._new_roster = False
                self._greet()
            hard_state, log = self._storage.hard_state, self._storage.log
            self._raft = Raft(self._number, len(self._urls), time.monotonic(), random.random, hard_state, log)
            self._raft.floor = min(self._memory.of(self._number).committed, len(log))
            while not self._forgot:
                await self._next_turn(TURN)
                await self._turn(self._raft)
            await self._stay_away(self._forgot)
        finally:
            for task in dialling:
                task.cancel()
            await asyncio.gather(*dialling, return_exceptions=True)
            self._disk.shutdown()
            self._storage.close()

    def _greet(self) -> None:
        for other, dial in self._dials.items():
            dial.send(self.hello(other))

    async def _stay_away(self, why: str) -> None:
        """Take no part for the rest of the job, also after a restart."""
        self._tell_once(why)
        if not self._storage.forgot:
            await self._write(lambda: self._storage.forget(why))
        self._greet()
        self._raft = None  # it does not know the leader either
        if self.elected.done():
            self.deposed(why)
        await asyncio.Event().wait()

    async def _next_turn(self, seconds: float) -> None:
        waking = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        await self._wake.wait()
        waking.cancel()
        self._wake.clear()

    async def _turn(self, raft: Raft) -> None:
        now = time.monotonic()
        inbox, self._inbox = self._inbox, []
        try:
            for sender, message in inbox:
                self._hear(raft, sender, message, now)
        except Contradicted:
            self._take_no_part(quorums.CONTRADICTED())
        if not self._takes_part():
            return
        raft.tick(now)
        if self.elected.done() and raft.role is not Role.LEADER:
            self.deposed(quorums.DEPOSED())
        elif self.elected.done() and self._texts:
            texts, self._texts = self._texts, []
            raft.propose(texts, now)
        self._memory.look(raft)
        step = raft.ready()
        if step.writes:
            known = self._memory.to_write()
            await self._write(lambda: self._storage.write(step, known))
            self._memory.written(known)
        if not self._takes_part():
            return  # it was found in the meantime
        self._say(step)
        if raft.role is Role.LEADER and now >= self._shared + HEARTBEAT:
            self._shared = now
            for other in self._sharing:
                self._dials[other].send(self._memory.known())
        if raft.committed > self._applied:
            self._apply([entry.text for entry in raft.log[self._applied : raft.committed]])
            self._applied = raft.committed
        if not self.elected.done() and raft.leads():
            self._first = self._applied
            self.elected.set_result(raft.term)
        while self._marks and self._first + self._marks[0][0] <= raft.committed:
            self._marks.pop(0)[1]()

    def _hear(self, raft: Raft, sender: int, message: RaftMessage | Known, now: float) -> None:
        if isinstance(message, Known):
            self._memory.learn(message)
            return
        raft.receive(sender, message, now)
        self._memory.hear(sender, message, raft)

    def _say(self, step: Step) -> None:
        for other, message in step.messages:
            self._dials[other].send(message)

    async def _write(self, what: Callable[[], None]) -> None:
        """Write, and return only when it is done: nothing may be sent before."""
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(self._disk, what)
                return
            except Exception as error:  # any error: a member that ends without a message would be worse than one that cannot write
                self._tell_once(quorums.LOG_UNWRITTEN(reason=str(error)))
                await asyncio.sleep(AGAIN)

    def _tell_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._tell(text)
