"""The agent of a node that serves any number of jobs, `understudy agent`: it connects to the orchestrator and runs parts of jobs.

A *part* is one job's process on this node (`python -m understudy.agent`, as `understudy run` starts it). It owns the job's workers here and
talks to the orchestrator itself. So this process may be restarted at any time: parts, and training, go on; the next one finds them by the
files in its state folder. A part that is killed is restarted, and adopts its workers.

Detectors run in this process, once for all jobs of the node, with this process's own environment instead of a job's. Parts run none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from understudy.agent.adoption import has_workers
from understudy.agent.config import AgentConfig
from understudy.agent.descendants import become_subreaper, reap
from understudy.agent.detection import NodeDetectors, looking
from understudy.agent.orchestrator_link import OrchestratorLink, Sent
from understudy.common.names import AGENT, ENDED, TOKEN_VARIABLE, WORKERS
from understudy.common.restarts import Restarts
from understudy.common.tls import trusting
from understudy.detectors.choice import Choice, choose
from understudy.links import messages
from understudy.links.messages import EndPart, Hello, PartEnded, Seen, StartPart
from understudy.links.page import open_process, started
from understudy.messages import agents

REAP = 2.0  # seconds
NOTE = "part.json"
END = 30.0  # seconds from SIGTERM to SIGKILL of a part, which itself gives its workers time


@dataclass(frozen=True)
class NodeConfig:
    orchestrator: str
    node: str
    address: str  # where the other nodes reach this one's workers
    slots: int
    domain: str
    labels: dict[str, str]
    state: Path
    certificate: str = ""
    heartbeat: float = 0.5
    detectors: str = ""  # the text of their file; empty: none

    def hello(self, parts: tuple[messages.Part, ...]) -> Hello:
        return Hello(self.node, self.address, self.slots, self.domain, self.labels, parts)


@dataclass
class _Running:
    """A part's process, and the message that started it."""

    wanted: StartPart
    pid: int
    pidfd: int
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def part(self) -> messages.Part:
        return self.wanted.part


@dataclass(frozen=True)
class _Noted:
    """The record of a part for the next process of this agent. The file is only readable by its owner, because it contains the
    job's token.
    """

    wanted: StartPart
    pid: int
    started: int


_NOTE = TypeAdapter(_Noted)


class NodeAgent:
    def __init__(self, config: NodeConfig, token: str, say: Callable[[str], None]) -> None:
        self._config = config
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, _Running] = {}
        self._detectors: NodeDetectors | None = None
        self._link = OrchestratorLink(
            *(lambda: config.orchestrator, "/v1/agent", token, trusting(config.certificate)),
            *(self._resync_events, self._obey, say, lambda: bool(self._running)),
        )

    async def run(self) -> None:
        """Run until cancelled. Raises `Refused`."""
        become_subreaper()  # workers whose part is gone stay below this process
        self._adopt()
        self._detectors = NodeDetectors(self._choices(), self._seen, self._looking)
        beating = self._loop.create_task(self._beat())
        try:
            await self._link.run()
        finally:
            beating.cancel()
            await asyncio.to_thread(self._detectors.close)

    async def _beat(self) -> None:
        reaped = 0.0
        while True:
            await asyncio.sleep(self._config.heartbeat)
            if time.monotonic() - reaped > REAP:
                reaped = time.monotonic()
                reap(())
            if not self._link.away():
                self._link.send(self._hello())

    def _resync_events(self) -> list[Sent]:
        return [self._hello(), *(self._detectors.known() if self._detectors is not None else [])]

    def _hello(self) -> Hello:
        return self._config.hello(tuple(running.part for running in self._running.values()))

    def _obey(self, message: messages.Message) -> None:
        if isinstance(message, StartPart):
            if message.part.job not in self._running:
                try:
                    self._start(message)
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    self._say(agents.PART_UNSTARTED(job=message.part.job, reason=str(error)))
                    self._link.send(PartEnded(message.part.job, 1))
        elif isinstance(message, EndPart):
            running = self._running.get(message.job)
            if running is not None:
                signal.pidfd_send_signal(running.pidfd, signal.SIGTERM)
                self._loop.call_later(END, self._kill, running)
        else:
            self._say(agents.NOT_FOR_A_NODE(type=type(message).__name__))

    # -- parts --------------------------------------------------------------------------------------------------------

    def _folder(self, job: str) -> Path:
        return self._config.state / "parts" / job

    def _start(self, message: StartPart) -> None:
        part, c = message.part, self._config
        folder = self._folder(part.job)
        shutil.rmtree(folder, ignore_errors=True)  # of a part that ended and is started again
        (folder / WORKERS).mkdir(parents=True)
        config = AgentConfig(
            job=part.job,
            run_dir=folder,
            node=c.node,
            node_rank=part.node_rank,
            address=c.address,
            program=message.program,
            workers_per_node=message.workers_per_node,
            spares=part.spares,
            streams=True,
            domain=c.domain,
            labels=tuple(c.labels.items()),
            timeouts=message.timeouts,
            orchestrator=c.orchestrator,
            certificate=c.certificate,
            role=message.role,
            looks=False,
        )
        config.write(folder / AGENT)
        self._watch(self._launch(message))
        self._say(agents.PART_STARTED(job=part.job, node_rank=part.node_rank, slots=part.slots, spares=part.spares))

    def _launch(self, message: StartPart) -> _Running:
        """Start a part's process. Raises `OSError` or `subprocess.SubprocessError`."""
        folder = self._folder(message.part.job)
        environment = {**message.environment, TOKEN_VARIABLE: message.token}
        with (folder / "agent.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "understudy.agent", "--config", str(folder / AGENT)],
                cwd=message.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        running = _Running(message, process.pid, os.pidfd_open(process.pid))
        self._note(folder, _Noted(message, process.pid, started(process.pid)))
        process.returncode = 0  # its exit status is not needed: `ENDED` has more, for every process of this agent
        return running

    def _watch(self, running: _Running) -> None:
        self._running[running.part.job] = running
        self._loop.add_reader(running.pidfd, self._ended, running)

    def _ended(self, running: _Running) -> None:
        self._loop.remove_reader(running.pidfd)
        os.close(running.pidfd)
        job = running.part.job
        del self._running[job]
        code = _exit_code(self._folder(job))
        if code is None and self._start_again(running):
            return
        with contextlib.suppress(OSError):
            (self._folder(job) / NOTE).unlink()
        self._say(agents.PART_ENDED(job=job))
        self._link.send(PartEnded(job, 1 if code is None else code))

    def _start_again(self, running: _Running) -> bool:
        """Restart a part that was killed, so that it adopts its workers. Return False if it is given up."""
        job = running.part.job
        if not running.restarts.take(time.monotonic()):
            self._say(agents.PART_KILLED_OFTEN(job=job, times=running.restarts.exceeded))
            return False
        try:
            again = self._launch(running.wanted)
        except (OSError, subprocess.SubprocessError) as error:
            self._say(agents.PART_NOT_RESTARTED(job=job, reason=str(error)))
            return False
        again.restarts = running.restarts
        self._watch(again)
        self._say(agents.PART_RESTARTED(job=job))
        return True

    def _kill(self, running: _Running) -> None:
        if self._running.get(running.part.job) is running:
            signal.pidfd_send_signal(running.pidfd, signal.SIGKILL)

    # -- detectors ----------------------------------------------------------------------------------------------------

    def _choices(self) -> list[Choice]:
        """Return the detectors to run. Raises `ValueError`. They see what happened since the begin of the jobs that are still here."""
        began = [time.time()]
        for job in self._running:
            with contextlib.suppress(OSError):
                began.append((self._folder(job) / AGENT).stat().st_mtime)
        names = dict.fromkeys((self._config.node, socket.gethostname()))
        return choose(self._config.detectors, names=tuple(names), since=min(began))

    def _seen(self, seen: Seen) -> None:
        """Send evidence. Called on a detector's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._link.send, seen)

    def _looking(self, names: list[str]) -> None:
        if names:
            self._say(looking(self._config.node, names))

    # -- an earlier life ----------------------------------------------------------------------------------------------

    def _note(self, folder: Path, noted: _Noted) -> None:
        unfinished = folder / f".{NOTE}"
        unfinished.unlink(missing_ok=True)
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_NOTE.dump_json(noted))
        unfinished.rename(folder / NOTE)

    def _adopt(self) -> None:
        """Adopt the parts of an earlier process of this agent; restart those that were killed since."""
        for path in sorted((self._config.state / "parts").glob(f"*/{NOTE}")):
            with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
                noted = _NOTE.validate_json(path.read_bytes())
                job = noted.wanted.part.job
                pidfd = open_process(noted.pid, noted.started)
                if pidfd is not None:
                    self._watch(_Running(noted.wanted, noted.pid, pidfd))
                    self._say(agents.PART_TAKEN_UP(job=job))
                elif _exit_code(path.parent) is None and has_workers(path.parent / WORKERS):
                    self._watch(self._launch(noted.wanted))
                    self._say(agents.PART_RESTARTED_WITH_AGENT(job=job))
                else:
                    path.unlink()


def _exit_code(folder: Path) -> int | None:
    """Return the exit code of a part that has ended normally."""
    with contextlib.suppress(OSError, ValueError):
        return int((folder / ENDED).read_text())
    return None
