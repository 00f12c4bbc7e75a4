"""The machine with a clock and a network: events go in, commands go out to the agents at once.

Everything happens on one asyncio loop. `submit` hands an event to the machine, sends what it decides, and only then
passes the event to the journal (`journal.py` says why). Progress (`Pages`) does not go through the machine: it feeds
the status and the hang watch, whose verdict is an event like any other.

A node is lost when nothing has been heard of it for `Timeouts.node_lost` seconds, whether its connection has ended or is only silent;
after a restart of the orchestrator agents get `GRACE` seconds to find it. Commands for a node that is away are not kept: the
machine repeats what is still under way when its agent joins again. The only node of `understudy run` is this very host: it is
given `GRACE` seconds, too. Nodes that are lost together are one event, so that they cost one generation. A host of which nothing is heard
in any other way either (`silent_since`) gets less: see `_absent`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from understudy.core.commands import Assign, Command, EndJob, Prepare, Recover, SetTimer, StartWorker, Tell
from understudy.core.events import (
    Believed,
    Event,
    Expired,
    FromAgent,
    LostNode,
    NodeJoined,
    NodesLost,
    ScriptFailed,
    WorkerLost,
    WorkerStarted,
)
from understudy.core.machine import Machine
from understudy.core.model import LossCause
from understudy.core.transitions import WorkerState
from understudy.detectors.hang import HangWatch
from understudy.detectors.heartbeats import Heartbeats
from understudy.links.bounds import bounded, plain
from understudy.links.messages import BadMessage, Lines, Pages, encode, encode_all, taken
from understudy.links.page import PageView
from understudy.orchestrator.journal import JobJournal

MARGIN = 2.0  # seconds beyond `Timeouts.node_lost` for the agent of a host that says nothing in any other way
GRACE = 15.0  # seconds for the agents to come back to an orchestrator that was started again, and for the only agent of a job at any time
WATCH = 0.2  # seconds between two looks for silent nodes
LOOK = 1.0  # seconds between two looks at the pages, or less where the shortest limit is less than a minute
WRITING = 1.0  # seconds that a decision waits for the journal at most
KEEP = 2.0  # seconds between two notes of the progress in the journal, ...
KEEP_WORKERS = 500  # ... or more where there are more than so many workers for each of these seconds


def to_stderr(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk or a closed pipe behind it must not end who tells of it: the journal's thread, say
        print(f"understudy: {plain(text)}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Close:
    """Ends a connection. With POLICY_VIOLATION an agent does not try again."""

    code: int
    reason: str


POLICY_VIOLATION = 1008
REPLACED = 4000
SILENT = 4001


@dataclass(frozen=True)
class _Grace:
    """Of a node whose agent is away."""

    ends: float  # by the loop's clock
    at_most: float  # the same for a node that is up
    lost: LostNode  # what becomes of it then


class AgentLink:
    """One agent's connection: what is put into `outbox` is sent in that order."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.outbox: asyncio.Queue[str | Close] = asyncio.Queue()


class Service:
    """Owns the machine, its timers and the agents' links. `run` returns the job's exit code."""

    def __init__(
        self,
        machine: Machine,
        journal: JobJournal,
        *,
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = to_stderr,
        output: Callable[[str], None] = lambda text: None,
        guard: Callable[[], None] = lambda: None,
        up: Callable[[str], bool] = lambda node: False,
        far: bool = False,
        silent_since: Callable[[int, float], float | None] = lambda node_rank, seconds: None,
    ) -> None:
        """`guard` returns only while this process may decide. `far`: the nodes are other hosts, even if there is only one. `up`: whether a
        node is known to be there by other means than the job's own connection to it. `silent_since`: the unix time since which nothing was
        heard of a node's host, in another way than by its agent, if that is more than so many seconds ago; None also where there is no
        other way.
        """
        self.machine = machine
        self._pages: dict[str, PageView] = {}
        self._readings: dict[str, tuple[Pages, float]] = {}  # by node, those that have not been looked at, and when they came
        self._journal = journal
        self._clock = clock
        self._tell = tell
        self._output = output
        self._guard = guard
        self._up = up
        self._far = far or machine.state.spec.nodes > 1
        self._silent_since = silent_since
        self._resumed = clock()
        self._links: dict[str, AgentLink] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._graces: dict[str, _Grace] = {}
        self._watch = HangWatch(machine.state.timeouts)
        self._heartbeats = Heartbeats(machine.state.timeouts.node_lost, WATCH)
        self._warned_stall = False
        self._complaints: set[str] = set()
        self._ended = asyncio.Event()
        self._all_gone = asyncio.Event()

    # -- the life of the service ------------------------------------------------------------------------------------

    def resume(self, events: list[tuple[float, Event]]) -> None:
        """Take the machine to where the journal left it, and set the timers that were running then."""
        due: dict[str, float] = {}
        for then, event in events:
            for command in self.machine.handle(event, then):
                if isinstance(command, SetTimer):
                    due[command.timer] = then + command.seconds
        now = self._clock()
        for timer in sorted(self.machine.state.timers):
            self._set_timer(timer, max(0.001, due.get(timer, now) - now))
        for node in self.machine.state.nodes.values():
            if not node.lost:
                self._grant(node.name, GRACE, "its agent did not come back after the orchestrator was started again")
        if self.machine.state.ended is not None:
            self._ended.set()

    async def run(self) -> int:
        """Until the job has ended and every agent has gone. Returns the exit code."""
        ended_before = self._ended.is_set()
        watching = asyncio.create_task(self._watch_pages())
        try:
            await self._ended.wait()
            if ended_before:
                await self._tell_the_late()
        finally:
            watching.cancel()
        if self._links:
            try:
                # An agent needs `stop` seconds to end workers that ignore SIGTERM, and a moment more to go.
                await asyncio.wait_for(self._all_gone.wait(), self.machine.state.timeouts.stop + 2.0)
            except TimeoutError:
                self._tell(f"agents still connected after the end: {', '.join(sorted(self._links))}")
        self._journal.progress(self.pages)
        for handle in self._timers.values():
            handle.cancel()
        ended = self.machine.state.ended
        assert ended is not None
        if not self._journal.strict:  # of several orchestrators this one may be far from the user: every node's command line says it
            self._tell(ended.message)
        return ended.exit_code

    async def _tell_the_late(self) -> None:
        """The job had ended before this orchestrator was started, and agents may not have heard of it; they have `GRACE` to come."""
        while self._graces or self._links:  # noqa: ASYNC110
            await asyncio.sleep(WATCH)

    # -- events in, commands out ------------------------------------------------------------------------------------

    def submit(self, event: Event, encoded: str = "") -> None:
        """Let the machine handle `event`, now, and send what it decides. `encoded`: the same event as it came, which the journal keeps.
        Without it the event is our own or a person's, and held to the same bounds here. Raises `OutOfBounds`.
        """
        self._guard()
        event = event if encoded else bounded(event)
        now = self._clock()
        commands = self.machine.handle(event, now)
        everything = isinstance(event, Believed)  # what a person has said is not heard again
        decision = [command for command in commands if everything or self._decides(command)]
        self._carry_out([command for command in commands if not (everything or self._decides(command))] if decision else commands)
        self._journal.append(now, event, encoded)
        if decision:
            self._send_when_written(decision)

    def _decides(self, command: Command) -> bool:
        """Whether it must not be sent before it is written: it says who is which rank, or can be no other, what is redone, or that
        it is over.
        """
        first = isinstance(command, Assign) and not command.newcomer
        return first or isinstance(command, Prepare | Recover) or (self._journal.strict and isinstance(command, EndJob))

    def _send_when_written(self, decision: list[Command]) -> None:
        """A decision changes what workers are; one that is not in the journal could not be understood by the next orchestrator. A journal
        that cannot be written does not hold the job up for longer than `WRITING`, unless it is strict.
        """
        loop = asyncio.get_running_loop()
        waiting = [decision]

        def send() -> None:
            if late is not None:
                late.cancel()
            self._guard()  # it may have been a while
            while waiting:
                self._carry_out(waiting.pop())

        def written() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(send)

        late = None if self._journal.strict else loop.call_later(WRITING, send)
        self._journal.mark(written)

    def _carry_out(self, commands: list[Command]) -> None:
        """What goes to one node shares its frames. Nodes need not hear of anything in the same order as each other."""
        workers = self.machine.state.workers
        for_nodes: dict[str, list[Command]] = {}
        for command in commands:
            if isinstance(command, Tell):
                self._tell(command.text)
            elif isinstance(command, SetTimer):
                self._set_timer(command.timer, command.seconds)
            elif isinstance(command, EndJob):
                for node in self._links:
                    for_nodes.setdefault(node, []).append(command)
                self._ended.set()
            else:
                node = command.node if isinstance(command, StartWorker) else workers[command.worker].node
                for_nodes.setdefault(node, []).append(command)
        for node, told in for_nodes.items():
            link = self._links.get(node)
            if link is not None:
                for frame in encode_all(told):
                    link.outbox.put_nowait(frame)

    def _set_timer(self, timer: str, seconds: float) -> None:
        running = self._timers.pop(timer, None)
        if running is not None:
            running.cancel()
        if seconds > 0:
            loop = asyncio.get_running_loop()
            self._timers[timer] = loop.call_later(seconds, self._expire, timer)

    def _expire(self, timer: str) -> None:
        self._timers.pop(timer, None)
        self.submit(Expired(timer))

    # -- agents -----------------------------------------------------------------------------------------------------

    def attach(self, joined: NodeJoined) -> AgentLink:
        """An agent has connected and said who it is. A new connection of the same node replaces the old one."""
        old = self._links.get(joined.node)
        if old is not None:
            old.outbox.put_nowait(Close(REPLACED, "replaced by a newer connection"))
        self._graces.pop(joined.node, None)
        link = AgentLink(joined.node)
        self._links[joined.node] = link
        self._hear(link)
        if self._ended.is_set():
            assert self.machine.state.ended is not None
            link.outbox.put_nowait(encode(self.machine.state.ended))
        else:
            self.submit(joined)
            if joined.node not in self.machine.state.nodes:
                link.outbox.put_nowait(Close(POLICY_VIOLATION, f"node rank {joined.node_rank} is taken or out of range"))
        return link

    def detach(self, link: AgentLink) -> None:
        """The connection is gone. Not yet the node."""
        if self._links.get(link.node) is not link:
            return
        del self._links[link.node]
        self._heartbeats.forget(link.node)
        if self._ended.is_set():
            if not self._links:
                self._all_gone.set()
        elif link.node in self.machine.state.nodes:
            limit = self.machine.state.timeouts.node_lost if self._far else GRACE
            self._grant(link.node, limit, f"its agent was disconnected for more than {limit:g} s")

    def _grant(self, node: str, limit: float, detail: str) -> None:
        """Its agent has so many seconds to come (again). Where the node is up it has `GRACE`: the agent was killed, and is being started
        again while its workers train.
        """
        now = asyncio.get_running_loop().time()
        self._graces[node] = _Grace(now + limit, now + GRACE, LostNode(node, detail, self._clock()))

    def _hear(self, link: AgentLink) -> None:
        if self._far:
            self._heartbeats.heard(link.node, asyncio.get_running_loop().time())

    def _look_for_silence(self) -> bool:
        """Whether nodes were lost: those whose agents did not come back, and those of which nothing is heard although they are connected. A
        connection may wake up much later: it is closed, so that the agent comes again and hears what has become of its workers.
        """
        now = asyncio.get_running_loop().time()
        over = [grace for grace in self._graces.values() if grace.ends <= now]
        lost = [grace.lost for grace in over if grace.at_most <= now or not self._up(grace.lost.node)]
        lost += [gone for gone in self._absent() if gone.node not in {known.node for known in lost}]
        for node, seconds in self._heartbeats.silent(now).items():
            self._heartbeats.forget(node)
            self._links.pop(node).outbox.put_nowait(Close(SILENT, "nothing was heard of this node for too long"))
            detail = f"nothing was heard of it for {seconds:.1f} s (the host is down, or the network to it)"
            lost.append(LostNode(node, detail, self._clock() - seconds))
        for gone in lost:
            self._graces.pop(gone.node, None)
        if lost:
            self.submit(NodesLost(tuple(sorted(lost, key=lambda gone: gone.happened))))
        return bool(lost)

    def _absent(self) -> list[LostNode]:
        """After a restart of the orchestrator an agent has `GRACE` to come back, but not so long if nothing is heard of its host in any
        other way either, while most agents are back and so can find us: its host is down, or the network to it.
        """
        limit, now = self.machine.state.timeouts.node_lost, self._clock()
        nodes = [node for node in self.machine.state.nodes.values() if not node.lost]
        if not self._graces or now - self._resumed < limit + MARGIN or 2 * len(self._links) <= len(nodes):
            return []
        found = []
        for node in nodes:
            since = self._silent_since(node.rank, limit)
            if node.name in self._graces and node.name not in self._links and since is not None:
                found.append(LostNode(node.name, f"nothing was heard of it for {now - since:.1f} s, nor of its orchestrator", since))
        return found

    def receive(self, link: AgentLink, text: str) -> None:
        """A line from an agent. One that is not understood, or speaks of another node's worker, is dropped and told
        once.
        """
        try:
            message, written = taken(text)
        except BadMessage as error:
            self._complain(f"node {link.node} sent something that is not a message: {error}")
            return
        if self._links.get(link.node) is not link:
            return  # a connection that has been replaced
        self._hear(link)
        if isinstance(message, Pages):
            self._readings[link.node] = message, self._clock()
            return
        if isinstance(message, Lines):
            self._output(message.text)
            return
        if not isinstance(message, FromAgent):
            self._complain(f"node {link.node} sent a {type(message).__name__}, which is not an agent's to send")
            return
        if isinstance(message, NodeJoined):
            self._complain(f"node {link.node} says again that it has joined")  # what it said of its workers then may be long over
            return
        worker = getattr(message, "worker", None)
        known = self.machine.state.workers.get(worker) if isinstance(worker, str) else None
        if worker is not None and (known.node != link.node if known else not isinstance(message, WorkerStarted)):
            self._complain(f"node {link.node} speaks of worker {worker}, which is not there")
            return
        if getattr(message, "node", link.node) != link.node:
            self._complain(f"node {link.node} speaks for another node")
            return
        self.submit(message, written)

    def _complain(self, text: str) -> None:
        if text not in self._complaints and len(self._complaints) < 100:
            self._complaints.add(text)
            self._tell(text)

    # -- progress ---------------------------------------------------------------------------------------------------

    @property
    def pages(self) -> dict[str, PageView]:
        """The newest page of every worker that has been heard of."""
        workers = self.machine.state.workers
        for node, (message, then) in self._readings.items():
            mine = {w: page for w, page in message.pages.items() if w in workers and workers[w].node == node}
            self._pages.update(mine)
            self._watch.observe(mine, message.clock, then)
        self._readings.clear()
        return self._pages

    async def _watch_pages(self) -> None:
        kept = looked = 0.0
        look_every = min(LOOK, self.machine.state.timeouts.hang_floor / 60)
        while True:
            await asyncio.sleep(WATCH)
            if self._look_for_silence():
                continue  # what was decided goes out first
            now = asyncio.get_running_loop().time()
            if now - looked >= look_every:
                looked = now
                self.look()
            if now - kept >= max(KEEP, len(self._pages) / KEEP_WORKERS) and self.pages:
                kept = now
                self._journal.progress(self.pages)

    def look(self) -> None:
        """Does a worker hang? Then it is lost."""
        state, now = self.machine.state, self._clock()
        _ = self.pages  # what has come since the last look
        there = {w.name: w for node in state.nodes.values() for w in node.workers.values() if w.state is not WorkerState.RELEASED}
        self._watch.forget(there.keys())
        holding = (WorkerState.MEMBER, WorkerState.NEWCOMER)
        held = {rank: name for rank, name in state.ranks.items() if name in there and there[name].state in holding}
        holders = set(held.values())
        idle = [name for name in there if name not in holders]
        verdict = self._watch.judge(held, idle, now)
        if verdict is not None:
            self.submit(WorkerLost(verdict.worker, LossCause.HUNG, verdict.detail, verdict.happened))
            return
        if (behind := self._watch.left_behind(held)) is not None:
            rank, page, detail = behind
            self.submit(ScriptFailed(held[rank], rank, page.step, detail, ""))
            return
        stalled = not self._watch.moves(held, now) and self._watch.stalled(held, now)
        if not held or stalled < state.timeouts.hang_first:
            self._warned_stall = False
        elif not self._warned_stall:
            self._warned_stall = True
            self._tell(f"no rank has made progress for {stalled:.0f} s, and no rank alone can be told to hold up the others")
