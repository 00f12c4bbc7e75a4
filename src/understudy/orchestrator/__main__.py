"""`python -m understudy.orchestrator`: serve one job until it ends, or, as `understudy orchestrator`, any number of jobs until stopped.

One job (`--run-dir`): the exit code is the job's. It writes `RUN_DIR/orchestrator.json` ({"url", "pid"}) once it serves. If it is restarted
with the same run directory, it replays the journal and continues; give it the same port, so that the agents find it. With `--members` it is
one of several, on other hosts, one of which leads (`quorum`).

A service (`--state-dir`): jobs are submitted over HTTP and run on the nodes whose agents have connected. If it is restarted with the same
folder, it continues. Ending it ends no job.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
import uvloop

from understudy.common.backoff import Backoff
from understudy.common.console import say
from understudy.common.names import JOURNAL, TOKEN_VARIABLE, UNUSABLE
from understudy.common.tls import trusting
from understudy.core.events import StopAsked
from understudy.core.model import Timeouts
from understudy.links import messages
from understudy.messages import orchestrators, quorums
from understudy.orchestrator import database, journal
from understudy.orchestrator.api import create_app
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.journal import AGAIN, AGAIN_AT_MOST
from understudy.orchestrator.leadership import Leadership
from understudy.orchestrator.migrations import NewerJournal
from understudy.orchestrator.quorum import serving as quorum
from understudy.orchestrator.scheduler_access import from_scheduler
from understudy.orchestrator.security import SHORTEST, Access, load_or_create, load_or_create_token, read_secrets
from understudy.orchestrator.server import Certificates, Server, announce, listen
from understudy.orchestrator.settings import Settings
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.kubernetes.names import JOB_VARIABLE

GARBAGE = (50_000, 20, 50)  # there is hardly any garbage in cycles here, and an incident of a big job makes objects by the 100,000
_PR_SET_PDEATHSIG = 1

T = TypeVar("T")


def main(argv: list[str] | None = None) -> int:
    arguments = _parse(argv)
    if arguments.die_with_parent:
        _die_with_parent()
    folder: Path = arguments.run_dir or arguments.state_dir
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a socket for each agent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        settings = _settings(folder, arguments.spec_json, member=bool(arguments.members)) if arguments.run_dir else None
        entry = _entry(arguments, folder)
        _lock(folder, shared=bool(arguments.database))
        leadership = Leadership(arguments.database, say) if arguments.database else None
        if leadership is None:
            listener = listen(arguments.host, arguments.port)
    except ValueError as error:
        say(str(error))
        return UNUSABLE
    except OSError as error:
        say(orchestrators.UNUSABLE(reason=str(error)))
        return UNUSABLE
    try:
        if arguments.members:
            return uvloop.run(_take_part(arguments, folder, settings, entry, listener))
        if leadership is None:
            return uvloop.run(_serve(arguments, folder, settings, entry, listener, None))
        return uvloop.run(_lead(arguments, folder, entry, leadership))
    except (NewerJournal, SchedulerFailed, journal.Damaged, journal.Unreadable) as error:
        say(str(error))
        return UNUSABLE


async def _take_part(arguments: argparse.Namespace, folder: Path, settings: Settings | None, entry: _Entry, listener: socket.socket) -> int:
    """Run one of several orchestrators that share nothing but the network."""
    assert settings is not None
    _prepare()
    urls = arguments.members.split(",")
    token = load_or_create_token(folder)
    access, certificates = entry.access, entry.certificates
    scheduler = from_scheduler(arguments.scheduler, folder)
    if job := os.environ.get(JOB_VARIABLE):
        await quorum.serve(_of_lock(arguments.number, urls, job), urls, folder, settings, access, certificates, listener, scheduler)
        return 0  # of the pod: the exit code of the job is in its resource
    make = quorum.of_quorum(arguments.number, urls, folder, token, trusting(arguments.trust))
    return await quorum.serve(make, urls, folder, settings, access, certificates, listener, scheduler)


def _of_lock(number: int, urls: Sequence[str], job: str) -> quorum.Make:
    """Return the factory of lock holders. Its client is imported only in a pod on Kubernetes."""
    from understudy.orchestrator.quorum.leased import of_lock

    return of_lock(number, urls, job, say)


def _prepare() -> None:
    messages.prepare()
    gc.freeze()  # all existing objects are permanent
    gc.set_threshold(*GARBAGE)
    # uvicorn logs this for every agent that is rejected with an answer.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "without completing handshake" not in record.getMessage())


async def _lead(arguments: argparse.Namespace, folder: Path, entry: _Entry, leadership: Leadership) -> int:
    """Run one of several: serve and listen only while it leads, so that clients know that it does."""
    waiting = asyncio.ensure_future(leadership.wait())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, waiting.cancel)
    try:
        await waiting
    except asyncio.CancelledError:
        return 0
    keeping = asyncio.create_task(leadership.keep())
    try:
        listener = listen(arguments.host, arguments.port)
        return await _serve(arguments, folder, None, entry, listener, leadership)
    except OSError as error:
        say(orchestrators.ADDRESS_UNUSABLE(address=f"{arguments.host}:{arguments.port}", reason=error.strerror))
        return UNUSABLE
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _serve(
    arguments: argparse.Namespace,
    folder: Path,
    settings: Settings | None,
    entry: _Entry,
    listener: socket.socket,
    leadership: Leadership | None,
) -> int:
    _prepare()
    place: Path | str = arguments.database or folder / JOURNAL
    aside: dict[str, str] = {}
    known = await asyncio.to_thread(_patiently, place, lambda: journal.read_all(place, aside=aside if settings is None else None))
    if leadership is None:
        writer = journal.Journal(place, say)
        jobs = Jobs(writer, say)
    else:
        writer = journal.Journal(place, say, leadership.fence, lambda: leadership.step_down(orchestrators.OVERTAKEN()))
        jobs = Jobs(writer, say, leadership.guard)
    cluster: Cluster | None = None
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    if settings is not None:
        jobs.single, jobs.scheduler = True, from_scheduler(arguments.scheduler, folder)
        job = jobs.begin(settings, known=known.get(settings.spec.job))
        job.running.add_done_callback(partial(_over, ended))
    else:
        cluster = Cluster(jobs, folder, entry.access, say, Timeouts())
        for name, why in aside.items():
            jobs.put_aside(name, why)
        cluster.resume(known)
    writer.start()

    app = create_app(jobs, entry.access, cluster, leadership.fence if leadership is not None else 0)
    scheme = "https" if entry.certificates is not None else "http"
    server = Server(app, entry.certificates, entry.must_show, lambda: announce(folder, scheme, listener, tell=cluster is not None))
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        asyncio.get_running_loop().add_signal_handler(number, _signalled, jobs, cluster, ended, number, code)

    serving = asyncio.create_task(server.serve(sockets=[listener]))
    watching = asyncio.create_task(cluster.watch()) if cluster is not None else None
    waiting: set[asyncio.Future[Any]] = {serving, ended}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():  # the server could not start or failed: without it there is no control
        await serving
        say(orchestrators.SERVER_STOPPED())
        return 1
    if watching is not None:
        watching.cancel()
    server.should_exit = True
    await serving
    await asyncio.to_thread(writer.close)
    return ended.result()


def _over(ended: asyncio.Future[int], job: asyncio.Task[int]) -> None:
    """End with 0; or, if the job was put aside, as if the journal could not be read.

    Then the command line continues without an orchestrator, and tries again.
    """
    if ended.done():
        return
    if job.cancelled():
        ended.set_result(UNUSABLE)
    elif (error := job.exception()) is not None:
        ended.set_exception(error)
    else:
        ended.set_result(0)  # the job's exit code is in its journal and its agents: here it could be mistaken for `UNUSABLE`


def _signalled(jobs: Jobs, cluster: Cluster | None, ended: asyncio.Future[int], number: signal.Signals, code: int) -> None:
    if cluster is None and jobs.all():
        for job in jobs.all():
            job.service.submit(StopAsked(number.name, code))
    elif not ended.done() and cluster is None:  # its job is put aside
        ended.set_result(0)
    elif not ended.done():
        say(orchestrators.SERVICE_ENDS(signal=number.name))
        ended.set_result(0)


def _lock(folder: Path, shared: bool) -> None:
    """Allow one orchestrator for each folder, unless a database decides which of several leads. The lock lasts as long as this process."""
    if shared:
        return
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(orchestrators.FOLDER_TAKEN(folder=folder)) from None


@dataclass(frozen=True)
class _Entry:
    """The credentials that are required. `must_show`: a certificate."""

    access: Access
    certificates: Certificates | None
    must_show: bool = False


def _entry(arguments: argparse.Namespace, folder: Path) -> _Entry:
    """Return the credentials. Only a service on the loopback address may need none. Raises `ValueError` or `OSError`."""
    certificates = Certificates(arguments.tls_cert, arguments.tls_key) if arguments.tls_cert else None
    if arguments.tls:
        certificates = Certificates.of(arguments.tls)
    if arguments.run_dir:
        return _Entry(Access([load_or_create_token(arguments.run_dir)]), certificates)
    given = read_secrets(arguments.token_file, os.environ.get(TOKEN_VARIABLE, ""))
    mutual = certificates is not None and bool(certificates.authority)
    if not ipaddress.ip_address(arguments.host).is_loopback:
        if not given and not mutual:
            raise ValueError(orchestrators.TOKEN_NEEDED(host=arguments.host))
        if any(len(secret) < SHORTEST for secret in given):
            raise ValueError(orchestrators.SECRET_TOO_SHORT(least=SHORTEST))
    access = Access(given or [load_or_create(folder / "secret")], asks=bool(given) or mutual)
    return _Entry(access, certificates, must_show=mutual and not given)


def _settings(run_dir: Path, given: str | None, *, member: bool) -> Settings:
    """Return the settings of the journal if there is one, else of the command line. A `member` of several may have none."""
    place = run_dir / JOURNAL
    try:
        known = _patiently(place, lambda: journal.read(place))
    except (journal.Damaged, journal.Unreadable) as error:
        if not member or given is None:
            raise
        say(quorums.MEMBER_JOURNAL_DAMAGED(reason=str(error), kept=database.set_aside(place)))
        known = None
    if known is not None:
        return known.settings
    if given is None:
        raise ValueError(orchestrators.SETTINGS_NEEDED(folder=run_dir))
    return Settings.from_json(given if given.lstrip().startswith("{") else Path(given).read_text())


def _patiently(place: Path | str, read: Callable[[], T]) -> T:
    """Read, and try again if the file cannot be read for now (SQLite needs a little disk space for that, too).

    Training goes on in the meantime, and an orchestrator that ended would be restarted only a few times.
    """
    backoff, reported = Backoff(AGAIN, AGAIN_AT_MOST), False
    while True:
        try:
            return read()
        except (sa.exc.OperationalError, sqlite3.OperationalError) as error:
            if not isinstance(place, Path):
                raise
            if not reported:
                reported = True
                say(orchestrators.JOURNAL_UNREADABLE_NOW(path=place, reason=str(getattr(error, "orig", error))))
            time.sleep(backoff.delay())


def _die_with_parent() -> None:
    """Ask for SIGTERM when the parent process is gone, so that a killed command line leaves nothing running."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m understudy.orchestrator", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--run-dir", type=Path, help="serve one job, whose run directory this is")
    where.add_argument("--state-dir", type=Path, help="serve any number of jobs, and keep their state here")
    parser.add_argument("--database", default=os.environ.get("UNDERSTUDY_DATABASE", ""), help="of a service: a postgresql:// URL")
    parser.add_argument("--token-file", type=Path, help="of a service: the secret of its users and agents")
    parser.add_argument("--spec-json", help='{"spec": ..., "timeouts": ...} or the path of a file with it')
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0: the system chooses")
    parser.add_argument("--tls-cert", help="path of the certificate chain; then https and wss only")
    parser.add_argument("--tls-key", help="path of its key")
    parser.add_argument("--tls", type=Path, help="of a service: folder with tls.crt, tls.key and ca.crt, for mutual TLS")
    parser.add_argument("--members", default="", help="of one of several for one job: URLs of all, with commas between them")
    parser.add_argument("--number", type=int, default=0, help="which of them this one is, from 0")
    parser.add_argument("--trust", default="", help="with --members and TLS: certificate or folder by which it knows the others")
    parser.add_argument("--scheduler", default="", help="of one job: the scheduler in whose allocation this process runs")
    parser.add_argument("--die-with-parent", action="store_true", help="end the job when the starting process is gone")
    arguments = parser.parse_args(argv)
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        parser.error(orchestrators.TLS_HALVES())
    if arguments.tls and arguments.tls_cert:
        parser.error(orchestrators.TLS_TWICE())
    if arguments.members and not arguments.run_dir:
        parser.error(orchestrators.MEMBERS_OF_SERVICE())
    if arguments.run_dir:
        arguments.database = ""
    elif arguments.database and not arguments.database.startswith(("postgresql://", "postgres://")):
        parser.error(orchestrators.DATABASE_FORM())
    return arguments


if __name__ == "__main__":
    sys.exit(main())
