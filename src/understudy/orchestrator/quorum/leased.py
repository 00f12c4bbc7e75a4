"""One of several orchestrators of a job whose log Kubernetes keeps. The holder of the job's lock leads.

A proposal is written before it counts, and the next leader has read all of them. The lock decides which orchestrator may speak with agents.
The log prevents decisions by two: an orchestrator that was replaced cannot write to it. The first entry of a new leader is a mark, so that
its predecessor can no longer write before anything follows from what was read. If the API server is not available, no orchestrator leads:
training goes on, and a loss is recovered when it is back.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from understudy.messages import quorums
from understudy.orchestrator.lease_term import LeaseTerm
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.kubernetes import names
from understudy.schedulers.kubernetes.api import Api
from understudy.schedulers.kubernetes.config_map_log import ConfigMapLog, Overtaken, parts
from understudy.schedulers.kubernetes.leader_lease import LeaderLease, Lost
from understudy.schedulers.kubernetes.resource import owner_reference

SECONDS = 6  # for which a lock is valid
RENEW = 1.0  # seconds between two renewals
TRY = 0.5  # seconds between two attempts at anything
WATCH = 0.1  # seconds between two checks of whether this one still leads


def of_lock(number: int, urls: Sequence[str], job: str, tell: Callable[[str], None]) -> Callable[[Callable[[list[str]], None]], Leased]:
    """Return a factory of lock holders. `job`: GROUP/NAMESPACE/NAME/UID of its resource. Raises `SchedulerFailed` without a cluster."""
    group, namespace, name, uid = job.split("/")
    api = Api.found()
    owner = owner_reference(group, name, uid)
    holder = f"{number} {secrets.token_hex(8)}"
    lock = LeaderLease(api, namespace, names.account(name), holder, SECONDS, owner)
    return lambda apply: Leased(number, urls, lock, ConfigMapLog(api, group, namespace, name, owner), holder, tell, apply)


class Leased:
    def __init__(
        self,
        number: int,
        urls: Sequence[str],
        lock: LeaderLease,
        log: ConfigMapLog,
        holder: str,
        tell: Callable[[str], None],
        apply: Callable[[list[str]], None],
    ) -> None:
        """Create a candidate.

        `urls`: of all, by number. `holder`: its name in the lock: its number and a unique part. `apply`: receives written entries, as in
        `Member`.
        """
        self.elected: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.deposed: Callable[[str], None] = lambda why: None
        self._number = number
        self._urls = list(urls)
        self._lock = lock
        self._log = log
        self._holder = holder
        self._tell = tell
        self._apply = apply
        self._term = LeaseTerm(SECONDS)
        self._texts: list[str] = []
        self._proposed = self._written = 0
        self._marks: list[tuple[int, Callable[[], None]]] = []
        self._wake = asyncio.Event()
        self._failing = ""

    def guard(self) -> None:
        if self._term.over(time.monotonic()):
            self.deposed("the job's lock could not be renewed for too long, or this process was stopped")

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH)
            self.guard()

    def propose(self, text: str) -> None:
        self._texts.append(text)
        self._proposed += 1
        self._wake.set()

    def mark(self, reached: Callable[[], None]) -> None:
        self._marks.append((self._proposed, reached))
        self._wake.set()

    def silent_since(self, number: int, seconds: float) -> float | None:
        return None

    def known_by_all(self, since: float) -> bool:
        """Return True: the next leader reads the log."""
        return self._written == self._proposed

    def leading(self) -> str:
        number = self._lock.other.partition(" ")[0]
        known = number.isdecimal() and int(number) < len(self._urls) and int(number) != self._number
        return self._urls[int(number)] if known else ""

    async def run(self) -> None:
        fence = await self._wait()
        renewing = asyncio.create_task(self._keep())
        try:
            if await self._begin(fence):
                await self._write_all()
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(SchedulerFailed):  # it expires
                await asyncio.to_thread(self._lock.give_up)

    async def _wait(self) -> int:
        """Wait until this one has the lock."""
        while True:
            asked = time.monotonic()
            try:
                fence = await asyncio.to_thread(self._lock.take)
                self._answered()
            except SchedulerFailed as error:
                self._fails(error)
                fence = None
            if fence is not None:
                self._term.extend(asked)
                return fence
            await asyncio.sleep(TRY)

    async def _begin(self, fence: int) -> bool:
        """Read the log, and write that this one leads. Return False if another one leads now, or none can."""
        while True:
            try:
                entries = await asyncio.to_thread(self._log.read)
                mark = f"leads {fence} {self._holder}"
                await asyncio.to_thread(self._log.write, [mark], self._holder)
                break
            except Overtaken:
                self.deposed(quorums.LOG_OVERTAKEN())
                return False
            except ValueError as error:
                self._tell(quorums.LOG_UNREADABLE(reason=str(error)))
                return False
            except SchedulerFailed as error:
                self._fails(error)
                await asyncio.sleep(TRY)
        self._apply(entries)
        self.elected.set_result(fence)
        return True

    async def _write_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            texts, self._texts = self._texts, []
            for part in parts(texts):
                if not await self._write(part):
                    return
                self._apply(part)
                self._written += len(part)
            while self._marks and self._marks[0][0] <= self._written:
                self._marks.pop(0)[1]()

    async def _write(self, part: list[str]) -> bool:
        """Write until it succeeds. Return False if another one leads now."""
        while True:
            try:
                await asyncio.to_thread(self._log.write, part, self._holder)
                self._answered()
                return True
            except Overtaken:
                self.deposed(quorums.LOG_OVERTAKEN())
                return False
            except SchedulerFailed as error:  # for as long as it takes: the lock ensures that this has no effect in the meantime
                self._fails(error)
                await asyncio.sleep(TRY)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(RENEW)
            asked = time.monotonic()
            try:
                await asyncio.to_thread(self._lock.renew)
                self._term.extend(asked)
                self._answered()
            except Lost:
                self.deposed(quorums.LOCK_TAKEN())
                return
            except SchedulerFailed as error:
                self._fails(error)

    def _fails(self, error: SchedulerFailed) -> None:
        """Report the failure once, until it answers again."""
        if not self._failing:
            self._tell(quorums.LOG_AWAY(reason=str(error)))
        self._failing = str(error)

    def _answered(self) -> None:
        if self._failing:
            self._tell(quorums.LOG_BACK())
        self._failing = ""
