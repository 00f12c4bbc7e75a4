"""The agent: it executes the orchestrator's commands for this node, and reports what happens here.

One event loop owns everything; only output is written on other threads. A worker's end is detected by its lifeline and its pidfd, its
messages come through its socket, its progress through its page. Before a loss is reported, the worker's last messages are read: a worker
that was released, or whose script failed, is not lost.

The agent outlives a lost orchestrator (it buffers and reconnects) but not the command line that started it, whose end arrives as a signal
or as the end of the control socket, whichever is first. It first ends everything below it, unless it is killed: then the next agent adopts
the workers (`adoption.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Coroutine
from dataclasses import replace
from urllib.parse import quote

from understudy.agent import memory, notices, processes, unled
from understudy.agent.adoption import IntroducedWorker, Reception, abandoned
from understudy.agent.check import NodeCheck
from understudy.agent.config import AgentConfig, instance
from understudy.agent.descendants import reap
from understudy.agent.detection import NodeDetectors, looking
from understudy.agent.failures import folded
from understudy.agent.lifelines import Lifelines
from understudy.agent.link import WorkerLink
from understudy.agent.orchestrator_link import OrchestratorLink, Refused, Sent
from understudy.agent.output import Output
from understudy.agent.position import JournalPosition
from understudy.agent.progress import Progress
from understudy.agent.routes import Routes
from understudy.agent.shutdown import End, Shutdown
from understudy.agent.strays import Strays
from understudy.agent.supervisor_link import SupervisorLink
from understudy.agent.template import Template
from understudy.agent.worker import Worker
from understudy.common.names import ORCHESTRATOR, WORKERS, page_path
from understudy.common.room import room
from understudy.common.tls import trusting
from understudy.core import commands, events
from understudy.core.events import FromWorker
from understudy.detectors.choice import choose
from understudy.links import messages, reattach
from understudy.links.supervision import Ending
from understudy.messages import agents, starting

ToWorker = (
    commands.Assign
    | commands.Prepare
    | commands.Drill
    | commands.DrillOver
    | commands.Abort
    | commands.Publish
    | commands.Pause
    | commands.Recover
    | commands.Release
)
REAP_EVERY = 4  # heartbeats
SILENT_GRACE = 5.0  # seconds that a worker may live on after it has closed its link
REFUSALS_REPORTED = 3  # malformed lines of one worker that are reported; a worker that writes junk may write much of it


class Agent:
    def __init__(self, config: AgentConfig, token: str, control: socket.socket | None) -> None:
        self._config = config
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._output = Output(config.run_dir / WORKERS, self._stream if config.streams else None)
        self._routes = Routes(config)
        self._workers: dict[str, Worker] = {}
        self._own: set[int] = set()  # processes whose exit status is collected through their pidfd, and nowhere else
        self._template = Template(config, self._own)
        self._lifelines = Lifelines(config.run_dir, self._report_loss)
        self._strays = Strays(config, self._own, self._output.say)
        self._starting: dict[str, bool] = {}  # workers that have no process yet; False: killed in the meantime
        self._end: asyncio.Future[End] = self._loop.create_future()
        self._choices = choose(config.detectors, names=[socket.gethostname()], since=config.began or time.time()) if config.looks else []
        self._detectors: NodeDetectors | None = None
        self._check = NodeCheck(config.node, config.run_dir, self._checked)
        self._shutdown = Shutdown(config, self._workers, self._output.say)
        self._footprint: int | None = None
        self._world_size = 0  # of a job whose orchestrator cannot be started; 0: this is not known
        self._failures: dict[str, events.ScriptFailed] = {}  # by worker
        self._tasks: set[asyncio.Task[None]] = set()
        self._control = SupervisorLink(control, self._stop, self._parent_gone, self._notice, self._unled) if control is not None else None
        self._position = JournalPosition(config.run_dir, self._serves)
        self._orchestrator = OrchestratorLink(
            self._address,
            f"/v1/jobs/{quote(config.job, safe='')}/agent",
            token,
            trusting(config.certificate),
            self._resync_events,
            self._obey,
            self._output.say,
            self._serves,
            self._position.header,
        )
        self._progress = Progress(config, self._workers, self._orchestrator, lambda why: self._stop(signal.SIGTERM, 1, why))

    async def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # respect nohup
                self._loop.add_signal_handler(number, self._stop, number, 128 + number, starting.SIGNAL_RECEIVED(signal=number.name))
        self._take_up()
        reception = None
        try:
            reception = Reception(self._config.run_dir / WORKERS, self._met)
        except OSError as error:
            self._output.say(agents.NO_RECEPTION(reason=str(error)))
        self._detectors = NodeDetectors(self._choices, self._seen, self._looking)
        connection = self._loop.create_task(self._connection())
        pages = self._loop.create_task(self._watch_pages())
        try:
            end = await self._end
            self._tell(end)
            await self._shutdown.stop(end)
            for text in folded(self._failures.values(), end.message) if end.exit_code else ():
                self._output.say(text)
            if end.exit_code == 0 and (cut_off := self._shutdown.cut_off()) is not None:
                end = cut_off
                self._tell(end)
        finally:
            await asyncio.to_thread(self._detectors.close)
            watchers = (pages, connection)
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            if reception is not None:
                reception.close()
            await self._template.close()
            await self._strays.of_all()
            await self._output.drain(None, patience=2.0)
            await self._output.close(patience=3.0)
        return end.exit_code

    def _tell(self, end: End) -> None:
        """Tell the command line how the job ends; the last message counts."""
        if self._control is not None:
            self._control.tell(Ending(end.exit_code, end.message, end.ordered))

    # What makes the agent end.

    def _stop(self, number: signal.Signals, exit_code: int, reason: str) -> None:
        if self._end.done():
            self._shutdown.hurry.set()  # requested twice: no more grace
        else:
            self._end.set_result(End(exit_code, reason, number))
            self._orchestrator.over = True

    def _notice(self, number: signal.Signals) -> None:
        """Pass a signal to the workers with a rank; others do not run the script."""
        text = notices.pass_on(number, [worker for worker in self._workers.values() if worker.alive and worker.rank >= 0])
        if text is not None:
            self._output.say(text)

    def _unled(self, world_size: int) -> None:
        self._world_size = world_size

    def _look_whether_over(self) -> None:
        """End an unled job if it is over. An orchestrator that is connected again ends it itself."""
        if not self._orchestrator.away():
            self._world_size = 0
        end = unled.end_of(self._workers.values(), self._world_size) if self._world_size else None
        if end is not None:
            if end.exit_code == 0:
                self._release_finished()
            self._end.set_result(end)
            self._orchestrator.over = True

    def _parent_gone(self) -> None:
        self._stop(signal.SIGTERM, 1, agents.COMMAND_LINE_ENDED())

    async def _connection(self) -> None:
        try:
            await self._orchestrator.run()
        except Refused as error:
            if self._control is None:  # otherwise the command line prints it last
                self._output.say(str(error))
            if not self._end.done():
                self._end.set_result(End(1, str(error)))

    def _address(self) -> str | None:
        if self._config.orchestrator:
            return self._config.orchestrator
        try:
            text = (self._config.run_dir / ORCHESTRATOR).read_text()
        except FileNotFoundError:
            return None
        return str(json.loads(text)["url"])

    def _serves(self) -> bool:
        return any(worker.alive for worker in self._workers.values())

    # Commands.

    def _obey(self, message: messages.Message) -> None:
        match message:
            case commands.StartWorker(node=self._config.node):
                self._start(message)
            case commands.KillWorker():
                self._kill(message)
            case messages.Journalled():
                self._position.report(message)
            case commands.CheckNode(node=self._config.node):
                self._check.begin()
            case commands.EndJob():
                if not self._end.done():
                    if message.exit_code == 0:  # the message that released them may have been lost with a connection
                        self._release_finished()
                    self._end.set_result(End(message.exit_code, message.message, patient=True, ordered=True))
                    self._orchestrator.over = True
            case _ if isinstance(message, ToWorker):
                worker = self._workers.get(message.worker)
                if worker is not None and worker.alive:  # otherwise its loss is being reported to the orchestrator
                    self._relay(worker, message)
            case _:
                self._output.say(agents.NOT_FOR_NODE(type=type(message).__name__))

    def _release_finished(self) -> None:
        for worker in self._workers.values():
            if worker.alive and worker.finished and not worker.leaving:
                self._relay(worker, commands.Release(worker.name, 0))

    def _relay(self, worker: Worker, command: ToWorker) -> None:
        if isinstance(command, commands.Release):
            worker.leaving = True
        else:
            worker.replay_buffer.enter(command.generation)
        if isinstance(command, commands.Assign | commands.Prepare):
            environment = {**command.environment, "ROLE_NAME": self._config.role}
            command = replace(command, environment=environment)
        if isinstance(command, commands.Assign):
            worker.rank = command.rank
            self._routes.assigned(worker.route, worker.name, command.rank, environment)
        worker.tell(command)

    def _start(self, command: commands.StartWorker) -> None:
        known = self._workers.get(command.worker)
        if known is not None:  # a repeat, after the orchestrator came back
            for event in known.resync_events():
                self._orchestrator.send(event)
            return
        if self._end.done() or command.worker in self._starting:
            return
        if command.spare and (why := memory.refusal(self._footprint, room())) is not None:
            self._orchestrator.send(events.StartRefused(command.worker, self._config.node, why))
            return
        page_path(self._config.run_dir, command.worker).unlink(missing_ok=True)
        self._starting[command.worker] = True
        self._spawn(self._start_process(command.worker))

    async def _start_process(self, name: str) -> None:
        try:
            started = await self._template.start(name)
        except (OSError, subprocess.SubprocessError) as error:
            if self._starting.pop(name):
                self._orchestrator.send(events.StartRefused(name, self._config.node, agents.CANNOT_START(reason=str(error))))
            return
        wanted = self._starting.pop(name) and not self._end.done()
        worker = Worker(name, started.pid, started.pidfd, self._routes.fresh(name))
        self._connect(worker, started.link, started.stdout, started.stderr)
        self._know(worker)
        assert worker.started is not None
        self._orchestrator.send(worker.started)
        if not wanted:  # killed, or the job ended, while it was being started
            processes.signal_group(worker.pid, signal.SIGKILL)

    def _know(self, worker: Worker) -> None:
        self._workers[worker.name] = worker
        worker.started = events.WorkerStarted(worker.name, self._config.node, worker.pid)
        if worker.alive:
            self._loop.add_reader(worker.pidfd, self._ended, worker)

    def _connect(self, worker: Worker, link: socket.socket, stdout: int, stderr: int) -> None:
        worker.link = WorkerLink(
            link,
            worker.name,
            lambda event: self._heard(worker, event),
            lambda why: self._refused(worker, why),
            lambda: self._silent(worker),
        )
        self._output.attach(worker.name, worker.route, stdout, stderr)
        while worker.kept:
            worker.link.send(worker.kept.popleft())

    # Workers of an agent before this one.

    def _take_up(self) -> None:
        for left in abandoned(self._config.run_dir / WORKERS):
            worker = left.taken_up(self._config.node, self._routes.fresh(left.worker))
            self._strays.taken_up = True
            self._know(worker)
            if worker.alive:
                self._position.take_up()
                self._lifelines.watch(worker)
                self._loop.call_later(reattach.AWAY, self._unmet, worker)

    def _met(self, met: IntroducedWorker) -> None:
        who = met.introduction
        worker = self._workers.get(who.worker)
        if worker is None and who.worker not in self._starting and not self._end.done():
            with contextlib.suppress(OSError):  # it has ended
                worker = Worker(who.worker, met.pid, os.pidfd_open(met.pid), self._routes.fresh(who.worker), ours=False)
                self._strays.taken_up = True
                self._know(worker)
        if worker is None or worker.link is not None or worker.pid != met.pid or not worker.alive:
            met.reject()
            return
        worker.leaving = who.leaving
        worker.replay_buffer.enter(who.generation)
        if who.rank >= 0:
            worker.rank = who.rank
            self._routes.assigned(worker.route, worker.name, who.rank, who.environment)
        reattach.welcome(met.link)
        self._connect(worker, met.link, met.stdout, met.stderr)

    def _unmet(self, worker: Worker) -> None:
        if worker.alive and worker.link is None:
            text = agents.UNMET(worker=worker.label, node=self._config.node)
            self._orchestrator.send(events.Notice(worker.name, worker.rank, text))
            processes.signal_group(worker.pid, signal.SIGKILL)

    def _kill(self, command: commands.KillWorker) -> None:
        worker = self._workers.get(command.worker)
        if worker is None:
            if command.worker in self._starting:
                self._starting[command.worker] = False
            return
        worker.fenced = True
        if not worker.alive:
            for event in worker.resync_events():
                self._orchestrator.send(event)
            return
        processes.signal_group(worker.pid, signal.SIGKILL)
        self._spawn(self._strays.of(worker))

    # What workers do.

    def _heard(self, worker: Worker, event: FromWorker) -> None:
        if isinstance(event, events.ScriptFailed) and event.ends:
            worker.failing = replace(event, ends=False)
            return
        worker.remember(event)
        if isinstance(event, events.WorkerWarm):
            self._lifelines.watch(worker)
            size = memory.footprint(worker.pid)
            self._footprint = max(self._footprint or 0, size or 0)
        elif isinstance(event, events.Finished):
            worker.finished = True
            self._progress.report(ahead=True)  # its progress; nothing may be left to read a moment later
        elif isinstance(event, events.ScriptFailed):
            worker.leaving = worker.failed = True
            if worker.rank >= 0:
                self._failures[worker.name] = event
            self._output.printed(worker.name, event.traceback.encode(errors="replace"), shown=worker.rank < 0)
        self._orchestrator.send(event)

    def _refused(self, worker: Worker, why: str) -> None:
        worker.refused += 1
        if worker.refused <= REFUSALS_REPORTED:
            text = agents.WROTE_TO_OUR_SOCKET(worker=worker.label, reason=why[:500])
            self._orchestrator.send(events.Notice(worker.name, worker.rank, text))

    def _silent(self, worker: Worker) -> None:
        """Give a worker that has closed its end of the link time to end: otherwise it cannot be controlled any more."""
        worker.silent = True

        def look() -> None:
            if worker.alive and not worker.leaving:
                text = agents.CLOSED_OUR_SOCKET(worker=worker.label)
                self._orchestrator.send(events.Notice(worker.name, worker.rank, text))
                processes.signal_group(worker.pid, signal.SIGKILL)

        self._loop.call_later(SILENT_GRACE, look)

    def _ended(self, worker: Worker) -> None:
        """Handle the end of a process, as the kernel reports it."""
        # Its forks share its sockets to the other ranks: while one lives, the others do not notice the end. Its process group's number
        # stays in use until the exit status is collected, so this cannot hit any other process.
        processes.signal_group(worker.pid, signal.SIGKILL)
        happened = time.time()
        ending = processes.collect(worker.pidfd) if worker.ours else processes.seen(worker.pid)
        if ending is None:  # woken without a reason
            return
        self._own.discard(worker.pid)
        self._loop.remove_reader(worker.pidfd)
        os.close(worker.pidfd)
        if worker.link is not None:
            worker.link.drain()
            worker.link.close()
        worker.alive, worker.ending = False, ending
        self._report_loss(worker, ending, happened)
        if worker.page is not None:
            worker.page.close()
            worker.page = None
        self._shutdown.exits.set()
        self._spawn(self._strays.of(worker))
        self._spawn(self._output.drain(worker.name, patience=2.0))

    def _report_loss(self, worker: Worker, ending: processes.Ending, happened: float) -> None:
        """Report the end of a worker once while the job runs; for a released worker, that it has gone."""
        if worker.failed or worker.lost is not None or self._end.done():
            return
        if worker.failing is not None:  # an exit handler, or a signal, has ended it before it could report that
            self._heard(worker, worker.failing)
            return
        for other in list(self._workers.values()):
            if other.link is not None:
                other.link.drain()  # their messages up to now come first: one of them may have just replaced another
        self._progress.report()  # its last position
        if worker.ended_well(ending):
            worker.finished = True
            view = worker.look()
            self._heard(worker, events.Finished(worker.name, -1, view.step if view is not None else 0))
        worker.lost = events.WorkerLost(worker.name, ending.cause, ending.detail + worker.whereabouts(), happened)
        self._orchestrator.send(worker.lost)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Progress.

    async def _watch_pages(self) -> None:
        turn = 0
        while True:
            self._progress.report()
            if not self._end.done():
                self._look_whether_over()
            if not self._end.done():
                self._progress.look_whether_forgotten()
            turn += 1
            if turn % REAP_EVERY == 0:
                reap(self._own)
            await asyncio.sleep(self._config.timeouts.heartbeat)

    def _seen(self, seen: messages.Seen) -> None:
        """Send evidence. Called on a detector's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._orchestrator.send, seen)

    def _looking(self, names: list[str]) -> None:
        """Report which detectors run, if the user has given a file. Called on a detector's thread."""
        if names and self._config.detectors:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._output.say, looking(self._config.node, names))

    def _checked(self, answer: events.NodeChecked) -> None:
        """Send the result of the check. Called on the check's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._orchestrator.send, answer)

    def _stream(self, text: str) -> None:
        """Send output. Called on a writer's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._orchestrator.send_lines, text)

    def _resync_events(self) -> list[Sent]:
        c, known = self._config, (*self._workers, *self._starting)
        which = instance(c.run_dir)
        joined = events.NodeJoined(
            *(c.node, c.address, c.node_rank, c.domain, c.spares, known, c.labels, c.claim), which, c.workers_per_node
        )
        seen = self._detectors.known() if self._detectors is not None else []
        return [joined, *(event for worker in self._workers.values() for event in worker.resync_events()), *seen]
