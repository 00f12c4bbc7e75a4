"""Simulate many nodes in one process, for `control_plane.py`: they use the agents' protocol over real connections, and train nothing.

Every node keeps a WebSocket to the orchestrator and sends its workers' pages at every heartbeat. Its workers start and warm at once,
are always somewhere in the same transaction, and play their part in a recovery as real ones do: they stop some time after
an Abort (`settle`), report where they are and which copies they keep (by `core.buddies`), set up, and after Recover
wait for each other, as real ones do when they attach; then they report their phases and commit. A node that is lost sends and
reads nothing any more, like a host without power.

All times are unix times of one clock, taken when a frame is read from its connection or right before one is written to it. The time that
this process needs to read, decode and write is included, so they are upper bounds of the times of agents on separate hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from understudy.agent.orchestrator_link import ALONE
from understudy.common.page_view import Activity, PageView
from understudy.core import commands, events
from understudy.core.buddies import Place, buddies
from understudy.core.model import BuddyCopyRef, Position, VotePhase
from understudy.links import messages
from understudy.links.sockets import dial

STEP = 0.25  # seconds of a simulated transaction
CONNECTING = 32  # connections that are being made at a time
SPEAKING = 32  # nodes that answer at a time: their answers take this process long, and the others' heartbeats must not wait for it
COMMANDS = (commands.KillWorker, commands.Abort, commands.Assign)  # the commands with which an incident begins


@dataclass
class Worker:
    name: str
    rank: int = -1
    committed: events.Committed | None = None
    newcomer: bool = False


@dataclass
class Incident:
    """An incident as the agents see it, in unix seconds."""

    aborts: int  # wanted: one for each survivor
    recovers: int  # wanted: one for each rank
    first: float = 0.0  # command of the first wave
    last: float = 0.0
    quiesced: float = 0.0  # the last was written
    recovered: float = 0.0  # the last Recover was read
    heard: Counter[type] = field(default_factory=Counter)
    frames: int = 0
    warned: asyncio.Event = field(default_factory=asyncio.Event)  # the first wave has arrived everywhere
    met: asyncio.Event = field(default_factory=asyncio.Event)  # every rank has its Recover
    over: asyncio.Event = field(default_factory=asyncio.Event)  # every rank's Committed was written
    committed: int = 0


class Fleet:
    """All nodes. `hosts` of them have ranks, the others have spares only."""

    def __init__(self, hosts: int, ranks_per_node: int, spare_nodes: int, settle: float, heartbeat: float) -> None:
        self.url = self.token = ""
        self.ranks = hosts * ranks_per_node
        self.ranks_per_node = ranks_per_node
        self.settle = settle
        self.heartbeat = heartbeat
        self.nodes = [Node(self, number, 0 if number < hosts else ranks_per_node) for number in range(hosts + spare_nodes)]
        self.hosts = self.nodes[:hosts]
        self.copies: list[list[int]] = []  # ranks whose copies each rank keeps
        self.renew_copies(
            {rank: node for number, node in enumerate(self.hosts) for rank in range(number * ranks_per_node, (number + 1) * ranks_per_node)}
        )
        self.began = time.time()
        self.assigned: set[int] = set()  # ranks at the start
        self.all_assigned = asyncio.Event()
        self.assigned_at = 0.0
        self.transaction = 0
        self.incident: Incident | None = None
        self.opening = asyncio.Semaphore(CONNECTING)
        self.speaking = asyncio.Semaphore(SPEAKING)

    def renew_copies(self, where: dict[int, Node]) -> None:
        """Give every rank's copy to its buddies, as after each recovery. `where`: the node of each rank."""
        places = [Place(where[rank].domain, where[rank].name) for rank in range(self.ranks)]
        self.copies = [[] for _ in places]
        for rank, holders in enumerate(buddies(places)):
            for holder in holders:
                self.copies[holder].append(rank)

    def now_in(self) -> int:
        """Return the transaction that all ranks are in; it does not advance in an incident."""
        if self.incident is None or not self.incident.first:
            self.transaction = max(self.transaction, int((time.time() - self.began) / STEP) + 2)
        return self.transaction

    def spares(self) -> int:
        return sum(worker.rank < 0 for node in self.nodes if not node.dark for worker in node.workers.values())

    def lose(self, node: Node) -> Incident:
        """Make `node` fall silent; return the incident that follows."""
        self.incident = Incident(self.ranks - self.ranks_per_node, self.ranks)
        node.go_dark()
        return self.incident


class Node:
    def __init__(self, fleet: Fleet, number: int, spares: int) -> None:
        self.name = f"node{number}"
        self.domain = f"rack{number // 32}"
        self.number = number
        self.spares = spares
        self.workers: dict[str, Worker] = {}
        self.dark = False
        self.connected = asyncio.Event()
        self._fleet = fleet
        self._pages = 0
        self._socket: ClientConnection | None = None
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve a node until the job has ended or the node is lost; reconnect whenever the connection ends."""
        while not self.dark:
            with contextlib.suppress(OSError, ConnectionClosed, TimeoutError):
                async with self._fleet.opening:
                    path = f"/v1/jobs/{messages.ONLY}/agent"
                    patient = replace(ALONE, open=60.0, pong=6 * ALONE.pong)  # a busy generator must not be measured
                    self._socket = await dial(self._fleet.url, path, self._fleet.token, None, patient)
                    await self._say(events.NodeJoined(self.name, "127.0.0.1", self.number, self.domain, self.spares))
                    await self._say(*self._story())
                beating = asyncio.create_task(self._beat())
                self.connected.set()
                try:
                    if await self._listen():
                        return
                finally:
                    self.connected.clear()
                    beating.cancel()
                    await asyncio.gather(beating, return_exceptions=True)
            await asyncio.sleep(0.2)

    def go_dark(self) -> None:
        self.dark = True
        assert self._socket is not None
        self._socket.transport.pause_reading()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.transport.abort()

    def _story(self) -> list[events.Event]:
        told: list[events.Event] = []
        for worker in self.workers.values():
            told += self._started(worker)
            if worker.committed is not None:
                told.append(worker.committed)
        return told

    def _started(self, worker: Worker) -> list[events.Event]:
        number = int(worker.name[1:])
        return [
            events.WorkerStarted(worker.name, self.name, 10_000 + number),
            events.WorkerWarm(worker.name, f"127.0.0.1:{1024 + number % 60_000}"),
        ]

    async def _say(self, *said: messages.Message) -> None:
        if self.dark or self._socket is None:
            return
        with contextlib.suppress(ConnectionClosed):
            for frame, _ in messages.pack(map(messages.encode, said)):
                await self._socket.send(frame)

    async def _beat(self) -> None:
        await asyncio.sleep(random.random() * self._fleet.heartbeat)
        while not self.dark:
            clock, transaction = time.monotonic(), self._fleet.now_in()
            self._pages += 1
            idle = PageView(self._pages, clock, Activity.WARM, -1, 0, clock, 0, 0.0)
            busy = PageView(self._pages, clock, Activity.RUNNING, transaction, transaction, clock, 40, STEP)
            await self._say(messages.Pages(self.name, clock, {w.name: busy if w.rank >= 0 else idle for w in self.workers.values()}))
            await asyncio.sleep(self._fleet.heartbeat)

    async def _listen(self) -> bool:
        """Whether the job has ended."""
        assert self._socket is not None
        async for frame in self._socket:
            if '"EndJob"' in str(frame):
                await self._socket.close()
                return True
            answer = asyncio.create_task(self._take(str(frame), time.time()))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
        return False

    async def _take(self, frame: str, now: float) -> None:
        """Handle a frame a little later, so that this process first reads other frames that have arrived, at their time."""
        await asyncio.sleep(self._fleet.settle / 2)
        async with self._fleet.speaking:
            heard = [message for line in frame.split("\n") for message in messages.unfold(messages.decode(line))]
            self._note(heard, now)
        await self._answer(heard)

    def _note(self, heard: list[messages.Message], now: float) -> None:
        incident = self._fleet.incident
        if incident is None:
            return
        incident.frames += 1
        for message in heard:
            incident.heard[type(message)] += 1
            if isinstance(message, COMMANDS):
                incident.first = min(incident.first or now, now)
                incident.last = max(incident.last, now)
            elif isinstance(message, commands.Recover):
                incident.recovered = max(incident.recovered, now)
        if incident.heard[commands.Abort] >= incident.aborts and incident.heard[commands.Assign] >= self._fleet.ranks_per_node:
            incident.warned.set()
        if incident.heard[commands.Recover] >= incident.recovers:
            incident.met.set()

    async def _answer(self, heard: list[messages.Message]) -> None:
        """Send the answers of this node's workers to these commands."""
        at_once: list[events.Event] = []
        settled: list[events.Event] = []
        recovered: list[events.Event] = []
        for message in heard:
            match message:
                case commands.StartWorker():
                    worker = self.workers[message.worker] = Worker(message.worker)
                    at_once += self._started(worker)
                case commands.KillWorker():
                    self.workers.pop(message.worker, None)
                case commands.Assign():
                    settled += self._assigned(message)
                case commands.Abort():
                    settled += self._aborted(message)
                case commands.Recover():
                    recovered += self._recovered(message)
        await self._say(*at_once)
        incident = self._fleet.incident
        if settled and incident is not None:
            await asyncio.sleep(self._fleet.settle / 2)
            async with self._fleet.speaking:
                await self._say(*settled)
            if any(isinstance(said, events.Quiesced) for said in settled):
                incident.quiesced = time.time()
        elif settled:
            await self._say(*settled)
        if recovered and incident is not None:
            await incident.met.wait()
            async with self._fleet.speaking:
                await self._say(*(replace(said, started=time.time()) if isinstance(said, events.PhaseDone) else said for said in recovered))
            incident.committed += sum(isinstance(said, events.Committed) for said in recovered)
            if incident.committed >= incident.recovers:
                nodes = [node for node in self._fleet.nodes if not node.dark]
                self._fleet.renew_copies({worker.rank: node for node in nodes for worker in node.workers.values() if worker.rank >= 0})
                incident.over.set()

    def _assigned(self, command: commands.Assign) -> list[events.Event]:
        fleet, worker = self._fleet, self.workers[command.worker]
        worker.rank, worker.newcomer = command.rank, command.newcomer
        if command.newcomer:
            return [events.PhaseDone(worker.name, command.generation, "setup", time.time(), fleet.settle)]
        fleet.assigned.add(command.rank)
        if len(fleet.assigned) == fleet.ranks:
            fleet.assigned_at = time.time()
            fleet.all_assigned.set()
        worker.committed = events.Committed(worker.name, command.generation, 0, 1)
        return [worker.committed]

    def _aborted(self, command: commands.Abort) -> list[events.Event]:
        worker = self.workers[command.worker]
        if worker.newcomer:
            return []
        there = self._fleet.now_in()
        held = tuple(BuddyCopyRef(rank, transaction) for rank in self._fleet.copies[worker.rank] for transaction in (there - 2, there - 1))
        return [events.Quiesced(worker.name, command.generation, Position(there, VotePhase.RUNNING), held, there)]

    def _recovered(self, command: commands.Recover) -> list[events.Event]:
        worker, generation, now = self.workers[command.worker], command.generation, time.time()
        phases = ["attach", "transfer", "verify"] if worker.newcomer else ["attach", "transfer"]
        said: list[events.Event] = [
            events.PhaseDone(worker.name, generation, phase, now, 0.01, 1 << 20 if worker.newcomer else 0) for phase in phases
        ]
        if worker.newcomer:
            said.append(events.Verified(worker.name, generation, 100))
            worker.newcomer = False
        worker.committed = events.Committed(worker.name, generation, command.start, command.start + 1)
        return [*said, events.PhaseDone(worker.name, generation, "redo", now, 0.01), worker.committed]
