"""Choose the leader of several orchestrators: wait for the lease, renew it, and step down if that fails.

Without a valid lease an orchestrator must not decide anything, because another one may. So `guard` checks the lease before every decision,
by a clock that runs while this process is stopped. A leader that cannot renew its lease in time restarts and waits for the lease again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from understudy.messages import orchestrators
from understudy.orchestrator import migrations
from understudy.orchestrator.database import Deposed, Lease, shown
from understudy.orchestrator.lease_term import LeaseTerm

SECONDS = 3.0  # for which a lease is valid
RENEW = 1.0  # seconds between two renewals
TRY = 0.5  # seconds between two attempts to take it


class Leadership:
    def __init__(self, database: str, tell: Callable[[str], None]) -> None:
        self.fence = 0
        self._database = database
        self._tell = tell
        self._lease = Lease(database, f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}", SECONDS)
        self._term = LeaseTerm(SECONDS)

    async def wait(self) -> None:
        """Wait until this orchestrator leads. Raises `NewerJournal`."""
        reported = ""
        while True:
            asked = time.monotonic()
            try:
                fence = await asyncio.to_thread(self._lease.take)
                why = orchestrators.ANOTHER_LEADS()
            except SQLAlchemyError as error:
                fence, why = None, orchestrators.DATABASE_UNUSABLE(database=shown(self._database), reason=_reason(error))
            if fence is not None:
                if self._lease.migrated is not None:
                    self._tell(migrations.notice(shown(self._database), self._lease.migrated))
                if not self._term.worth_taking(asked, time.monotonic()):
                    continue  # migrating an older journal has used up the lease: try again, which is quick
                self.fence = fence
                self._term.extend(asked)
                return
            if why != reported:
                reported = why
                self._tell(why)
            await asyncio.sleep(TRY)

    async def keep(self) -> None:
        """Renew the lease until cancelled, and then give it up."""
        try:
            while True:
                await asyncio.sleep(RENEW)
                asked = time.monotonic()
                try:
                    await asyncio.wait_for(asyncio.to_thread(self._lease.renew, self.fence), SECONDS)
                    self._term.extend(asked)
                except Deposed:
                    self.step_down(orchestrators.OVERTAKEN())
                except (SQLAlchemyError, TimeoutError) as error:
                    if self._term.over(time.monotonic()):
                        self.step_down(orchestrators.LEASE_UNRENEWED(database=shown(self._database), reason=_reason(error)))
        finally:
            if not self._term.over(time.monotonic()):
                self._lease.give_up(self.fence)

    def guard(self) -> None:
        """Return only if this orchestrator leads; step down otherwise."""
        if self._term.over(time.monotonic()):
            self.step_down(orchestrators.LEASE_OVER())

    def step_down(self, why: str) -> None:
        """Restart this process, which then waits for the lease. Training goes on. Callable from any thread."""
        self._tell(orchestrators.LEAD_LOST(reason=why))
        os.execv(sys.executable, sys.orig_argv)


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error or type(error).__name__).strip().splitlines()[0]
