"""The process that a user starts and waits for: it keeps the orchestrator and this node's agent running, and cleans up.

Theory. One thread, one selector: pidfds of both children, the agent's control socket, and signals through a wake-up
descriptor. The children have their own sessions, so Ctrl-C at the terminal reaches only this process, which ends them in
order. An orchestrator that dies is restarted on the same port with the same journal, and an agent that is killed on the same
folder, where it takes over its workers; training goes on meanwhile. An orchestrator that refuses (its journal is damaged) is restarted with
growing pauses, and while none can lead the job, the agent takes care of its end. This process is a child
subreaper: it adopts processes that its descendants leave running, and kills them before it ends. If this process itself is
killed, the kernel signals both children (`dying_with`), which then do the same.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType

from understudy.agent.config import AgentConfig
from understudy.agent.descendants import become_subreaper, kill_all
from understudy.cli import client
from understudy.cli.run_directory import RunDirectory
from understudy.common.backoff import Backoff
from understudy.common.names import LEAVE, TOKEN_VARIABLE, UNUSABLE, WORKERS
from understudy.common.restarts import Restarts
from understudy.links.framing import LineReader
from understudy.links.supervision import Ending, Notice, Stop, Unled
from understudy.messages import starting
from understudy.schedulers.base import Ended, Running, Scheduler, Work
from understudy.schedulers.local import LocalScheduler

LAST_WORDS = 5.0  # seconds for the agent to report that the job is over, after the orchestrator has ended by itself
MARGIN = 10.0  # seconds after the workers' own grace period before this process stops waiting and kills
FAREWELL = 5.0  # seconds for the orchestrator to close its journal
PATIENCE, LONGEST_PATIENCE = 5.0, 300.0  # seconds before it is restarted: the first and the longest pause
NOTICES = (signal.SIGUSR1, signal.SIGUSR2)  # passed on to the script, unless the job should end with them


class Supervisor:
    def __init__(
        self,
        run: RunDirectory,
        config: AgentConfig,
        token: str,
        orchestrator: list[str] | None,
        port: int,
        signals: Iterable[signal.Signals],
        say: Callable[[str], None],
        *,
        several: bool = False,
        quiet: bool = False,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Prepare the supervisor; nothing is started yet.

        `orchestrator`: its command without the port, or None when it runs only on another node. `several`: there are others elsewhere,
        so the job needs neither this one nor this node. `quiet`: others report that all went well. `scheduler`: what starts both; by
        default this machine.
        """
        self._run = run
        self._config = config
        self._token = token
        self._command = orchestrator
        self._port = port
        self._signals = tuple(signals)
        self._notices = tuple(number for number in NOTICES if number not in self._signals)
        self._say = say
        self._several = several
        self._quiet = quiet
        self._scheduler = scheduler or LocalScheduler()
        self._ends_job = orchestrator is not None and config.node_rank == 0  # whether ending this command ends the job
        self._selector = selectors.DefaultSelector()
        self._orchestrator: Running | None = None
        self._agent: Running | None = None
        self._control: socket.socket | None = None
        self._words = LineReader()
        self._ending: Ending | None = None
        self._asked = 0  # number of signals so far
        self._deadline: float | None = None  # when waiting ends and killing begins, monotonic seconds
        self._awaiting_words: float | None = None
        self._restarts = {"orchestrator": Restarts(), "agent": Restarts()}
        self._refused = Backoff(PATIENCE, LONGEST_PATIENCE)
        self._last: Ended | None = None  # how the orchestrator has ended, unless by a signal
        self._again: float | None = None  # when an orchestrator that has refused is restarted
        self._exit_code: int | None = None

    def run(self) -> int:
        become_subreaper()
        restore = self._catch_signals()
        try:
            if self._command is not None:
                self._start_orchestrator()
            self._start_agent()
            while self._exit_code is None:
                self._turn()
            self._dismiss_orchestrator()
        finally:
            left = kill_all()
            restore()
        if left:
            self._say(starting.PROCESSES_REMAIN(pids=left))
        return self._exit_code

    # Starting.

    def _catch_signals(self) -> Callable[[], None]:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def noted(number: int, frame: FrameType | None) -> None:
            """Do nothing: the wake-up descriptor carries the number."""

        old = {}
        for number in (*self._signals, *self._notices, LEAVE):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup keeps its effect
                old[number] = signal.signal(number, noted)
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._signalled(reader))

        def restore() -> None:
            signal.set_wakeup_fd(old_fd)
            for number, handler in old.items():
                signal.signal(number, handler)
            reader.close()
            writer.close()

        return restore

    def _start_orchestrator(self) -> None:
        assert self._command is not None
        command = (*self._command, "--port", str(self._port))
        self._orchestrator = self._scheduler.submit(Work("orchestrator", command, {TOKEN_VARIABLE: self._token}))
        self._selector.register(self._orchestrator, selectors.EVENT_READ, self._orchestrator_ended)

    def _start_agent(self) -> None:
        self._config.write(self._run.agent_file)
        self._control, theirs = socket.socketpair()
        fd = theirs.fileno()
        # -P: a user's file with the name of one of our modules must not be imported in its place.
        command = (sys.executable, "-P", "-m", "understudy.agent", "--config", str(self._run.agent_file), "--control-fd", str(fd))
        self._agent = self._scheduler.add_node(
            Work(self._config.node, command, {TOKEN_VARIABLE: self._token}, reads=True, descriptors=(fd,))
        )
        theirs.close()
        self._selector.register(self._agent, selectors.EVENT_READ, self._agent_ended)
        self._selector.register(self._control, selectors.EVENT_READ, self._read_control)

    # The loop.

    def _turn(self) -> None:
        limits = [limit for limit in (self._deadline, self._awaiting_words, self._again) if limit is not None]
        wait = max(0.0, min(limits) - time.monotonic()) if limits else None
        for key, _ in self._selector.select(wait):
            if self._exit_code is None:
                key.data()
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline and self._exit_code is None:
            self._say(starting.NOT_IN_TIME())
            self._exit_code = self._code(1)
        if self._awaiting_words is not None and now >= self._awaiting_words:
            self._awaiting_words = None
            if self._last is not None and self._last.code == UNUSABLE:
                self._go_on_unled(self._last.how)
            else:
                self._restart_orchestrator("it ended while the job was running")
        if self._again is not None and now >= self._again:
            self._again = None
            if self._ending is None and not self._asked and self._orchestrator is None:
                self._start_orchestrator()

    def _signalled(self, reader: socket.socket) -> None:
        for number in reader.recv(64):
            if number == LEAVE:
                self._say(starting.NODE_RELEASED(node=self._config.node))
                self._exit_code = 0
                return
            if number in self._notices:
                self._notify(signal.Signals(number))
            if number not in self._signals:
                continue
            self._asked += 1
            name = signal.Signals(number).name
            if self._asked == 1:
                self._say(starting.STOPPING(signal=name))
                self._deadline = time.monotonic() + self._config.timeouts.stop + MARGIN
                self._stop(number, 128 + number, starting.SIGNAL_RECEIVED(signal=name))
            elif self._asked == 2:
                self._stop(number, 128 + number, starting.SIGNAL_RECEIVED(signal=name))
            else:
                self._exit_code = 128 + number

    def _stop(self, number: int, exit_code: int, reason: str) -> None:
        """Ask both to end: the agent stops its workers at once, the orchestrator records why and notifies the other nodes."""
        # A user's own signal is passed on to the script, as in torchrun; the others would only print a traceback per worker.
        onward = number if number in (signal.SIGUSR1, signal.SIGUSR2) else signal.SIGTERM
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.sendall(Stop(int(onward), exit_code, reason).encode())
        if self._ends_job and (self._several or self._orchestrator is not None) and self._asked <= 1:
            threading.Thread(target=self._tell_orchestrator, args=(reason, exit_code), daemon=True).start()

    def _notify(self, number: signal.Signals) -> None:
        self._say(starting.SIGNAL_FORWARDED(signal=number.name))
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.sendall(Notice(int(number)).encode())

    def _tell_orchestrator(self, reason: str, exit_code: int) -> None:
        with contextlib.suppress(client.NoAnswer, client.Denied, OSError, ValueError):
            stop = client.of_job(self._config.job, "stop")
            client.Server.of(self._run).call("POST", stop, {"reason": reason, "exit_code": exit_code}, limit=2.0)

    def _read_control(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(1 << 16)
        except ConnectionResetError:  # the agent has ended before it read everything from us: a second signal. Its own message came first
            data = b""
        if not data:
            self._selector.unregister(self._control)
            self._control.close()
            self._control = None
            return
        for line in filter(None, self._words.feed(data)):
            self._ending = Ending.decode(line)
            self._awaiting_words = None
            # The longest time that the agent needs: for workers that end when asked, then for the exit handlers of the others.
            finishing = self._config.timeouts.alone if self._code(1) == 0 else 0.0
            self._deadline = time.monotonic() + 2 * self._config.timeouts.stop + finishing + MARGIN

    # Ends.

    def _orchestrator_ended(self) -> None:
        child = self._orchestrator
        assert child is not None
        ended = child.ended()
        if ended is None:
            return
        self._selector.unregister(child)
        child.close()
        self._orchestrator = None
        self._last = None if ended.killed else ended
        if self._ending is not None or self._asked:
            return
        if not self._run.served():
            self._say(starting.ORCHESTRATOR_UNSTARTED(how=ended.how))
            self._end_agent(1, starting.ORCHESTRATOR_COULD_NOT_START())
        elif ended.killed:
            self._restart_orchestrator(ended.how)
        else:  # the job is over, and the agent is about to report it; or it failed
            self._awaiting_words = time.monotonic() + LAST_WORDS

    def _go_on_unled(self, how: str) -> None:
        """Continue without an orchestrator that can lead. Each attempt prints why it fails; one succeeds only after the journal has been
        restored.
        """
        self._keep_port()
        pause = self._refused.delay()
        if pause == PATIENCE:
            self._say(starting.ORCHESTRATOR_UNUSABLE(how=how))
        self._again = time.monotonic() + pause
        if self._control is not None and not self._several:
            with contextlib.suppress(OSError):
                self._control.sendall(Unled(self._run.job()["spec"]["world_size"]).encode())

    def _keep_port(self) -> None:
        """Keep the port: agents look for the next orchestrator where the last one was."""
        url = self._run.orchestrator()
        if url is not None and not self._port:
            self._port = int(url.rstrip("/").rpartition(":")[2])

    def _restart_orchestrator(self, how: str) -> None:
        self._refused.reset()
        if not self._may_restart("orchestrator", how):
            if self._several:
                self._say(starting.ORCHESTRATOR_STAYS_DOWN())
                return
            self._say(starting.JOB_STOPS())
            self._end_agent(1, starting.ORCHESTRATOR_KEEPS_ENDING())
            return
        self._say(starting.ORCHESTRATOR_RESTARTED(how=how))
        self._keep_port()
        self._start_orchestrator()

    def _may_restart(self, which: str, how: str) -> bool:
        may = self._restarts[which].take(time.monotonic())
        if not may:
            self._say(starting.ENDED_TOO_OFTEN(process=which, times=self._restarts[which].exceeded, how=how))
        return may

    def _end_agent(self, exit_code: int, reason: str) -> None:
        self._deadline = time.monotonic() + self._config.timeouts.stop + MARGIN
        self._stop(signal.SIGTERM, exit_code, reason)

    def _agent_ended(self) -> None:
        child = self._agent
        assert child is not None
        ended = child.ended()
        if ended is None:
            return
        self._selector.unregister(child)
        while self._control is not None:  # its last message; the socket will end, because the other end is closed
            self._read_control()
        child.close()
        self._agent = None
        if self._ending is None and ended.killed and not self._asked and self._may_restart("agent", ended.how):
            self._say(starting.AGENT_RESTARTED(node=self._config.node, how=ended.how))
            self._words = LineReader()
            self._start_agent()
            return
        if self._ending is None:
            self._say(starting.AGENT_LOST(node=self._config.node, how=ended.how, path=self._run.path / WORKERS))
            if self._orchestrator is not None and not self._several:
                self._tell_orchestrator(starting.AGENT_ENDED(node=self._config.node, how=ended.how), 1)
        elif self._quiet and self._code(1) == 0:
            pass
        elif self._ending.message and not self._asked and not (self._ending.told and self._command is not None and not self._several):
            self._say(self._ending.message)  # else the orchestrator has reported it, or the user knows
        self._exit_code = self._code(1)

    def _code(self, otherwise: int) -> int:
        return otherwise if self._ending is None else self._ending.exit_code

    def _dismiss_orchestrator(self) -> None:
        """Wait for the orchestrator to end, as it does when the job has ended; signal it if it was not informed of that."""
        child = self._orchestrator
        if child is None:
            return
        reported = self._ending is not None and self._ending.told
        for number in (None, signal.SIGTERM, signal.SIGKILL) if reported else (signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                child.signal(number)
            if child.wait(FAREWELL):
                break
        child.close()
