"""An agent process, the orchestrator's end of its connection, and the command line's end of its control socket."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tests.integration.processes import LIMIT, Mark, marked
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from understudy.agent.config import AgentConfig
from understudy.core import commands, events
from understudy.core.model import Timeouts
from understudy.links import messages, proof

STANDIN = (sys.executable, "-u", str(Path(__file__).with_name("standin_worker.py")))
TOKEN = "the token of this test"

E = TypeVar("E")


class Orchestrator:
    """The orchestrator's end of the agent's connection: records all messages, and sends those of the test. It decides nothing."""

    def __init__(self) -> None:
        self.heard: list[messages.Message] = []
        self.pages: list[messages.Pages] = []
        self.connections = 0
        self.refuses = 0  # a status with which it answers; 0: it lets the agent in
        self.proves = True  # ... and shows that it knows the token
        self.refused = 0  # how often it has
        self._news = asyncio.Condition()
        self._agent: ServerConnection | None = None
        self.port = 0

    async def start(self) -> None:
        server = await serve(self._talk, "127.0.0.1", self.port, process_request=self._admit)
        self._serving = server
        self.port = next(iter(server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        self._agent = None
        self._serving.close()
        await self._serving.wait_closed()

    async def tell(self, command: commands.Command) -> None:
        async with asyncio.timeout(LIMIT), self._news:
            await self._news.wait_for(lambda: self._agent is not None)
        assert self._agent is not None
        await self._agent.send(messages.encode(command))

    async def hears(self, kind: type[E], matching: Callable[[E], bool] = lambda event: True, after: int = 0) -> E:
        """The first event of this kind, among those from number `after`, that matches; waits for it."""

        def found() -> E | None:
            return next((e for e in self.heard[after:] if isinstance(e, kind) and matching(e)), None)

        async with asyncio.timeout(LIMIT), self._news:
            await self._news.wait_for(lambda: found() is not None)
        event = found()
        assert event is not None
        return event

    async def sees(self, matching: Callable[[messages.Pages], bool]) -> messages.Pages:
        async with asyncio.timeout(LIMIT), self._news:
            await self._news.wait_for(lambda: any(matching(pages) for pages in self.pages))
        return next(pages for pages in self.pages if matching(pages))

    async def worker(self, name: str, spare: bool = False) -> events.WorkerStarted:
        """Start one and wait until it is warm."""
        await self.tell(commands.StartWorker("node0", name, spare))
        started = await self.hears(events.WorkerStarted, lambda e: e.worker == name)
        await self.hears(events.WorkerWarm, lambda e: e.worker == name)
        return started

    async def assign(self, name: str, rank: int, **environment: str) -> None:
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), **environment}
        await self.tell(commands.Assign(name, 0, rank, False, False, "127.0.0.1:1", variables))

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return connection.respond(401, "no\n")
        if self.refuses:
            self.refused += 1
            answer = connection.respond(self.refuses, "no\n")
            if self.proves:
                answer.headers[proof.PROOF] = proof.proof(TOKEN, request.headers[proof.NONCE])
            return answer
        return None

    async def _talk(self, connection: ServerConnection) -> None:
        async with self._news:
            self._agent = connection
            self.connections += 1
            self._news.notify_all()
        await self._take(messages.decode(await connection.recv()))  # who it is, alone in its frame
        async for text in connection:
            for line in str(text).split("\n"):
                await self._take(messages.decode(line))

    async def _take(self, message: messages.Message) -> None:
        async with self._news:
            if isinstance(message, messages.Pages):
                self.pages.append(message)
            else:
                self.heard.append(message)
            self._news.notify_all()


class AgentProcess:
    def __init__(self, config: AgentConfig, mark: Mark, token: str, stdout: int | None = None) -> None:
        self.folder = config.run_dir
        config.write(config.run_dir / "agent.json")
        self.control, theirs = socket.socketpair()
        self._out, self._err = self.folder / "out.txt", self.folder / "err.txt"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "understudy.agent"),
                    *("--config", str(config.run_dir / "agent.json"), "--control-fd", str(theirs.fileno())),
                ],
                env=mark.environment(UNDERSTUDY_TOKEN=token),
                pass_fds=(theirs.fileno(),),
                stdout=out if stdout is None else stdout,
                stderr=err,
            )
        theirs.close()

    def output(self) -> str:
        return self._out.read_text()

    def errors(self) -> str:
        return self._err.read_text()

    def log(self, worker: str) -> bytes:
        return (self.folder / "workers" / f"{worker}.log").read_bytes()

    async def ends(self) -> int:
        return await asyncio.to_thread(self.process.wait, LIMIT)

    def last_words(self) -> dict[str, object]:
        """Return the agent's last message to the command line. The agent has ended."""
        words = b""
        while data := self.control.recv(1 << 16):
            words += data
        ending: dict[str, object] = json.loads(words)["ending"]
        return ending


@asynccontextmanager
async def agent(
    folder: Path,
    script: str,
    *arguments: str,
    token: str = TOKEN,
    stdout: int | None = None,
    stop: float = 10.0,
    **config: object,
) -> AsyncIterator[tuple[AgentProcess, Orchestrator, Mark]]:
    """Run a connected agent whose workers are stand-ins that execute `script`; no process of it is left running."""
    (folder / "workers").mkdir(exist_ok=True)
    path = folder / "script.py"
    path.write_text(script)
    orchestrator = Orchestrator()
    await orchestrator.start()
    settings = AgentConfig(
        job="job",
        run_dir=folder,
        node="node0",
        node_rank=0,
        address="127.0.0.1",
        program=(str(path), *arguments),
        workers_per_node=2,
        orchestrator=f"http://127.0.0.1:{orchestrator.port}",
        timeouts=Timeouts(stop=stop),
        worker_command=STANDIN,
    ).with_(**config)
    with marked() as mark:
        process = AgentProcess(settings, mark, token, stdout)
        try:
            yield process, orchestrator, mark
        finally:
            process.control.close()
            process.process.kill()
            process.process.wait()
            await orchestrator.stop()
