"""The agent's side of the template of workers (`worker.process.template`): start it, ask it for workers, replace a lost one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from understudy.agent.config import WORKER_COMMAND, AgentConfig
from understudy.agent.processes import Ends, Started, command_line, start, worker_environment
from understudy.common.console import standard_input
from understudy.common.dying import dying_with
from understudy.common.names import WORKER_VARIABLE, WORKERS, page_path
from understudy.links.fork import PLACEHOLDER, ForkRequest
from understudy.messages import agents

SWITCH = "UNDERSTUDY_FORK"  # "0": every worker is started separately
ATTEMPTS = 3  # templates that may be killed, one after the other, before a worker is given up
ENDING = 10.0  # seconds that a template which has closed its socket may take to end
MOST_OUTPUT = 2000  # characters of a failed template's output that are reported


class Template:
    """Starts workers. `own`: pids whose exit status is collected here or by the caller, and nowhere else."""

    def __init__(self, config: AgentConfig, own: set[int]) -> None:
        self._config = config
        self._own = own
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        whole = worker_environment(config, os.environ, PLACEHOLDER)
        self._environment = {name: value for name, value in whole.items() if name == WORKER_VARIABLE or PLACEHOLDER not in value}
        self._apart = config.worker_command != WORKER_COMMAND or os.environ.get(SWITCH) == "0"

    async def start(self, worker: str) -> Started:
        """Start a worker, whose pid is in `own` already. Raises `OSError` or `subprocess.SubprocessError` if it cannot be started."""
        async with self._turn:
            for _ in range(ATTEMPTS):
                if self._closed:
                    raise OSError(agents.AGENT_ENDING())
                if self._apart:
                    started = start(self._config, worker)
                    self._own.add(started.pid)
                    return started
                found = await self._fork(worker)
                if found is not None:
                    return found
        raise OSError(agents.TEMPLATE_KILLED())

    async def _fork(self, worker: str) -> Started | None:
        """Fork a worker; None: try again, with another template or without one."""
        if self._process is None:
            self._launch()
        assert self._connection is not None
        ends = Ends.make()
        go, go_end = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                answer = await self._ask(worker, [*ends.theirs, go])
            finally:
                os.close(go)
                ends.close_theirs()
            if answer is None:
                await self._bury()
            elif "failed" in answer:
                raise OSError(str(answer["failed"]))
            elif "refused" in answer:
                self._apart = True
                self._connection.close()  # it ends
            else:
                pid = int(answer["pid"])
                self._own.add(pid)
                try:
                    return Started(pid, os.pidfd_open(pid), *ends.ours)
                except ProcessLookupError:  # killed and collected at this instant
                    self._own.discard(pid)
            ends.close_ours()
            return None
        except BaseException:
            ends.close_ours()
            raise
        finally:
            os.close(go_end)

    def _launch(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command_line(self._config, PLACEHOLDER, theirs.fileno(), Path(os.devnull), "--template"),
                stdin=standard_input(),
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                preexec_fn=dying_with(os.getpid(), signal.SIGKILL),
                env=self._environment,
            )
        self._own.add(self._process.pid)
        self._connection = ours

    async def _ask(self, worker: str, fds: list[int]) -> dict[str, int | str] | None:
        """Send the request and return the answer; None: the template is gone."""
        assert self._connection is not None
        new = worker_environment(self._config, os.environ, worker)
        different = {name: value for name, value in new.items() if self._environment.get(name) != value}
        request = ForkRequest(worker, str(page_path(self._config.run_dir, worker)), different)
        try:
            socket.send_fds(self._connection, [request.encode()], fds)
            answer = await asyncio.get_running_loop().sock_recv(self._connection, 4096)
        except ConnectionError:
            return None
        return json.loads(answer) if answer else None

    async def close(self) -> None:
        """End the template, if there is one, and collect it: an orphan goes to the host's first process, which may not collect it."""
        self._closed = True
        if self._process is not None:
            self._process.kill()  # a caller that waits for its answer notices that it is gone
        async with self._turn:
            if self._process is not None and self._connection is not None:
                self._connection.close()
                with contextlib.suppress(subprocess.TimeoutExpired):  # it waits inside the kernel
                    await asyncio.to_thread(self._process.wait, ENDING)

    async def _bury(self) -> None:
        """Collect a template that is gone. Raises `OSError` if it ended by itself: another one would, too."""
        assert self._process is not None and self._connection is not None
        self._connection.close()
        try:
            status = await asyncio.to_thread(self._process.wait, ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._own.discard(self._process.pid)
        self._process = self._connection = None
        if status >= 0:
            words = self._log.read_text(errors="replace").strip()[-MOST_OUTPUT:]
            raise OSError(agents.TEMPLATE_ENDED(status=status, words=words))

    @property
    def _log(self) -> Path:
        return self._config.run_dir / WORKERS / "template.log"
