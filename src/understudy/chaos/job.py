"""A running job, as chaos sees it: its orchestrator's status, and its processes on this machine.

The state of the job comes from the HTTP interface, and is read again when the stream of events has news. Steps come from the
workers' pages where they are on this machine, because the orchestrator gets them half a second later.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psutil

from understudy.agent.descendants import environment_entry
from understudy.chaos.base import Victim
from understudy.common.bounds import known_pid
from understudy.common.names import CHAOS_VARIABLE, ORCHESTRATOR, RUN_DIR_VARIABLE, WORKER_VARIABLE, WORKERS, page_path
from understudy.links import reattach
from understudy.links.page import PageReader
from understudy.messages import faults

STALE = 0.5  # seconds after which the status is read again without news
AGAIN = 0.2  # seconds between two attempts to follow the events


class Away(Exception):
    """The orchestrator does not answer."""


class NotHere(ValueError):
    """A process is not on this machine, or has no known pid; the text names it and the place."""


class Source(Protocol):
    """The interface to a job's orchestrator. All but `last` may raise `Away`."""

    def status(self) -> dict[str, Any]: ...

    def report(self) -> dict[str, Any]: ...

    def events(self, after: int) -> Iterator[dict[str, Any]]:
        """Yield the events with a greater number, for as long as the job runs; the last one, without a number, is its end."""
        ...

    def last(self) -> dict[str, Any] | None:
        """Return the status of a job that has ended and whose orchestrator has gone, or None."""
        ...


@dataclass(frozen=True)
class View:
    """One status of the job. `answered`: the orchestrator did; otherwise this repeats its last answer."""

    status: dict[str, Any]
    incidents: list[dict[str, Any]]
    answered: bool

    @property
    def ended(self) -> bool:
        return self.status["exit_code"] is not None

    @property
    def nodes(self) -> list[str]:
        return sorted({holder["node"] for holder in (*self.status["ranks"], *self.status["spares"])})

    @property
    def spares(self) -> list[dict[str, Any]]:
        """The spares that are warm, prepared for a rank or not."""
        return [spare for spare in self.status["spares"] if spare["state"] != "starting"]

    @property
    def warming(self) -> bool:
        return len(self.spares) < len(self.status["spares"])

    @property
    def whole(self) -> bool:
        """Whether every rank trains, every incident is over, and there is a warm spare, or none to wait for."""
        trains = self.status["state"] == "training" and all(holder["state"] == "training" for holder in self.status["ranks"])
        spare = self.spares or not self.warming
        return bool(self.answered and trains and spare and all(one["seconds"] is not None for one in self.incidents))


@dataclass(frozen=True)
class Local:
    """A worker's process on this machine. `consents`: its job was started with `--chaos`."""

    worker: str
    pid: int
    run_dir: Path
    consents: bool


class WatchedJob:
    def __init__(self, source: Source, orchestrator: str, run_dir: Path | None) -> None:
        """Prepare the job; nothing is read yet. `orchestrator`: its URL. `run_dir`: of a job of `understudy run`."""
        self._source = source
        self._url = orchestrator
        self._run_dir = run_dir
        self._view: View | None = None
        self._looked = 0.0
        self._news = threading.Event()
        self._over = threading.Event()
        self._pages: dict[str, PageReader] = {}
        threading.Thread(target=self._follow, name="chaos-events", daemon=True).start()

    def close(self) -> None:
        self._over.set()
        for page in self._pages.values():
            page.close()

    def _follow(self) -> None:
        last = 0
        while not self._over.is_set():
            with contextlib.suppress(Away):
                for event in self._source.events(last):
                    last = event.get("number", last)
                    self._news.set()
                    if self._over.is_set():
                        return
            self._news.set()
            self._over.wait(AGAIN)

    def wait(self, seconds: float) -> None:
        """Wait for news, for so many seconds at most."""
        self._news.wait(seconds)

    def look(self) -> View:
        """Return the present view. Raises `Away` if the orchestrator has never answered yet."""
        if self._view is not None and not self._news.is_set() and time.monotonic() - self._looked < STALE:
            return self._view
        self._news.clear()
        self._looked = time.monotonic()
        try:
            self._view = View(self._source.status(), self._source.report()["incidents"], True)
        except Away:
            ended = self._source.last()
            if self._view is None:
                if ended is None:
                    raise
                self._view = View(ended, [], False)
            self._view = View(ended or self._view.status, self._view.incidents, False)
        return self._view

    # -- processes of this machine ---------------------------------------------------------------------------------------

    def local(self, holder: dict[str, Any]) -> Local:
        """Return the process of an entry of the status. Raises `NotHere`."""
        worker, pid, node = holder["worker"], known_pid(holder["pid"]), holder["node"]
        if pid is None:
            raise NotHere(faults.PID_UNKNOWN(worker=worker, node=node))
        run_dir = environment_entry(pid, RUN_DIR_VARIABLE)
        name = (environment_entry(pid, WORKER_VARIABLE) or "").rstrip("\0")
        ours = self._run_dir is None or run_dir == str(self._run_dir)
        if run_dir is None or name != worker or not ours:
            raise NotHere(faults.PROCESS_NOT_HERE(worker=worker, node=node, pid=pid))
        return Local(worker, pid, Path(run_dir), environment_entry(pid, CHAOS_VARIABLE) == "1")

    def node(self, name: str, view: View) -> Victim:
        """Return the agent of the job's part on a node, which is its workers' parent, and the workers. Raises `NotHere`."""
        holders = [holder for holder in (*view.status["ranks"], *view.spares) if holder["node"] == name]
        there = [self.local(holder) for holder in holders]
        if not there:
            raise NotHere(faults.NODE_NOT_HERE(node=name))
        try:
            agent = known_pid(reattach.listener(there[0].run_dir / WORKERS))
        except OSError as error:
            raise NotHere(faults.AGENT_NOT_HERE(node=name, reason=error.strerror)) from error
        if agent is None:
            raise NotHere(faults.AGENT_ELSEWHERE(node=name))
        return Victim(agent, tuple(local.pid for local in there))

    def orchestrator(self) -> Victim:
        """Return the orchestrator's process. Raises `NotHere`."""
        if self._run_dir is not None:
            with contextlib.suppress(FileNotFoundError):
                pid = int(json.loads((self._run_dir / ORCHESTRATOR).read_text())["pid"])
                if psutil.pid_exists(pid):
                    return Victim(pid)
        place = urlsplit(self._url.split(",")[0])
        if place.hostname in ("127.0.0.1", "::1", "localhost"):
            for connection in psutil.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == place.port and connection.pid:
                    return Victim(connection.pid)
        raise NotHere(faults.ORCHESTRATOR_NOT_HERE(url=self._url))

    def steps(self, view: View) -> dict[int, int]:
        """Return how many steps each rank has committed."""
        return {holder["rank"]: max(holder["step"], self._paged(holder)) for holder in view.status["ranks"]}

    def _paged(self, holder: dict[str, Any]) -> int:
        worker = holder["worker"]
        if worker not in self._pages:
            try:
                self._pages[worker] = PageReader(page_path(self.local(holder).run_dir, worker))
            except (NotHere, OSError):
                return 0
        return self._pages[worker].read().step
