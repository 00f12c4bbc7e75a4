"""The process of a member: it serves the job while it leads; otherwise it follows the leader and redirects clients to it.

When it loses the leadership, the process restarts as a follower, so that no state of the leader is left in it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from understudy.common.console import say
from understudy.common.names import JOURNAL
from understudy.messages import orchestrators, quorums
from understudy.orchestrator.api import create_app
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.quorum.candidate import Candidate
from understudy.orchestrator.quorum.member import Member
from understudy.orchestrator.quorum.replicated import Replicated
from understudy.orchestrator.quorum.storage import FILE, opened
from understudy.orchestrator.quorum.transport import LONGEST, Front
from understudy.orchestrator.scheduler_access import SchedulerAccess
from understudy.orchestrator.security import Access
from understudy.orchestrator.server import Certificates, Server, announce_all
from understudy.orchestrator.settings import Settings

FAREWELL = 2.0  # seconds for the others to learn that the job is over
LOOK = 0.05  # seconds between two checks of whether they have


Make = Callable[[Callable[[list[str]], None]], Candidate]


def of_quorum(number: int, urls: Sequence[str], folder: Path, token: str, trust: ssl.SSLContext | None) -> Make:
    """Return a factory of members that share nothing but the network."""
    return lambda apply: Member(number, urls, opened(folder / FILE, say), token, trust, say, apply)


async def serve(
    make: Make,
    urls: Sequence[str],
    folder: Path,
    settings: Settings,
    access: Access,
    certificates: Certificates | None,
    listener: socket.socket,
    scheduler: SchedulerAccess | None = None,
) -> int:
    """Serve until the job is over or SIGTERM arrives; return 0, or 1 if the server failed.

    `make`: creates this member, given a function for committed entries. `urls`: of all members, by number. `scheduler`: of a job in a
    scheduler's allocation.
    """
    writer = Replicated(folder / JOURNAL, say)
    writer.start()
    over = asyncio.Event()

    def apply(entries: list[str]) -> None:
        writer.apply(entries)
        if writer.over:
            over.set()

    member = make(apply)
    member.deposed = _restart_process
    front = Front(member.leading, access, member if isinstance(member, Member) else None)
    server = Server(front, certificates, False, lambda: announce_all(folder, urls), LONGEST)
    asked = asyncio.Event()
    for what in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(what, asked.set)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    running = asyncio.create_task(member.run())
    going = [asyncio.create_task(event.wait()) for event in (over, asked)]
    code = 0
    try:
        await _first(serving, running, member.elected, *going)
        if member.elected.done() and not (over.is_set() or asked.is_set()):
            await _lead(member, writer, front, settings, access, scheduler, _first(serving, running, *going))
        for task in (serving, running):
            if task.done():  # without either there is no control
                task.result()
                say(orchestrators.SERVER_STOPPED())
                code = 1
    finally:
        server.should_exit = True
        running.cancel()
        await asyncio.gather(serving, running, *(task for task in going if task.cancel()), return_exceptions=True)
        await asyncio.to_thread(writer.close)
    return code


async def _lead(
    member: Candidate,
    writer: Replicated,
    front: Front,
    settings: Settings,
    access: Access,
    scheduler: SchedulerAccess | None,
    end: Any,
) -> None:
    """Serve the job until its end, or until `end`."""
    fence = member.elected.result()
    known = writer.lead(member)
    jobs = Jobs(writer, say, member.guard, lambda node, seconds: member.silent_since(node, seconds))
    jobs.single, jobs.scheduler = True, scheduler
    job = jobs.begin(known.settings if known is not None else settings, known=known)
    front.app = create_app(jobs, access, None, fence)
    say(quorums.LEADS(term=fence))
    ending = asyncio.ensure_future(end)
    watching = asyncio.create_task(member.watch())
    try:
        await _first(job.running, ending)
        if job.running.cancelled():  # it is put aside
            await ending
            return
        if job.service.machine.state.ended is None:
            return
        await job.running  # its agents go
    finally:
        ending.cancel()
        watching.cancel()
    writer.end()
    with suppress(TimeoutError):
        await asyncio.wait_for(_all_informed(member), FAREWELL)


async def _all_informed(member: Candidate) -> None:
    """Wait until every other member knows that everything is committed."""
    written = asyncio.Event()
    member.mark(written.set)
    await written.wait()
    member.deposed = lambda why: None  # the others exit, too
    since = time.monotonic()
    while not member.known_by_all(since):  # noqa: ASYNC110
        await asyncio.sleep(LOOK)


async def _first(*waiting: Any) -> None:
    await asyncio.wait({asyncio.ensure_future(each) for each in waiting}, return_when=asyncio.FIRST_COMPLETED)


def _restart_process(why: str) -> None:
    say(quorums.LEADS_NO_MORE(reason=why))
    os.execv(sys.executable, sys.orig_argv)
