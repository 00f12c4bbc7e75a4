"""A proxy between agents and orchestrator that passes everything on, and adds forged messages.

Junk, messages without a field or with one of another type, of kinds that are not the sender's, about workers that are elsewhere, of
generations that are over; everything again that was sent before; and now and then far too much at once, which costs the connection.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from understudy.links.messages import LIMIT

KEPT = 100  # messages of a type that may be sent again
DIRECTIONS = ("up", "down")  # from an agent to the orchestrator, and back


_Earlier = dict[str, list[str]]  # by type: a rare one is sent again as often as a frequent one


@dataclass
class _Link:
    """One connection of an agent; the keys are `DIRECTIONS`."""

    targets: dict[str, ServerConnection | ClientConnection]
    earlier: dict[str, _Earlier]


class Tamperer:
    """Use as a context; `url` is where it listens, `sent` counts the added messages, by kind."""

    def __init__(self, target: str, seed: int) -> None:
        self._target = target.replace("http", "ws", 1)
        self._chance = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._over: asyncio.Event
        self._said: dict[str, _Earlier] = {}  # by agents, by path: messages of one node may be repeated for another
        self.sent: Counter[str] = Counter()
        self.url = ""

    def __enter__(self) -> Tamperer:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        async with serve(self._pass_on, "127.0.0.1", 0, max_size=None, compression=None) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            self._ready.set()
            await self._over.wait()

    async def _pass_on(self, agent: ServerConnection) -> None:
        assert agent.request is not None
        path, token = agent.request.path, agent.request.headers["Authorization"]
        try:
            async with connect(
                self._target + path, additional_headers={"Authorization": token}, proxy=None, max_size=None, compression=None
            ) as orchestrator:
                link = _Link({"up": orchestrator, "down": agent}, {"up": self._said.setdefault(path, {}), "down": {}})
                up = asyncio.create_task(self._carry(agent, link, "up"))
                down = asyncio.create_task(self._carry(orchestrator, link, "down"))
                await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
                up.cancel()
                down.cancel()
        except OSError:
            pass  # the orchestrator is not there: the agent sees that its connection ends

    async def _carry(self, source: ServerConnection | ClientConnection, link: _Link, direction: str) -> None:
        with suppress(ConnectionClosed):
            async for line in _lines(source):
                await link.targets[direction].send(line)
                message = json.loads(line)
                if message["type"] in ("Lines", "EndJob"):  # output is printed as often as it comes; the end is the end
                    continue
                alike = link.earlier[direction].setdefault(message["type"], [])
                alike.append(line)
                del alike[:-KEPT]
                await self._add(link)

    async def _add(self, link: _Link) -> None:
        """Perhaps add a forged message, in either direction: one of them may be silent for long."""
        direction = self._chance.choice([direction for direction in DIRECTIONS if link.earlier[direction]])
        earlier, target = link.earlier[direction], link.targets[direction]
        kind = self._chance.choice(sorted(earlier))
        line = self._chance.choice(earlier[kind])
        what = self._chance.random()
        if not self.sent["stale"] and (old := _stale(link.earlier["up"])):  # a run may have few of them: the first is not left to chance
            self.sent["stale"] += 1
            await link.targets["up"].send(old)
        elif what < 0.3:
            self.sent[f"again {kind}"] += 1
            await target.send(line)
        elif what < 0.6:
            invent = self._from_an_agent if direction == "up" else self._from_the_orchestrator
            invention, text = invent(json.loads(line))
            self.sent[invention] += 1
            await target.send(text)
        elif what < 0.605 and direction == "up":
            self.sent["too long"] += 1
            await target.send("x" * (LIMIT + 1))

    def _from_an_agent(self, message: dict[str, Any]) -> tuple[str, str]:
        if message.get("generation", 0) > 0 and self._chance.random() < 0.5:
            return "stale", _of_the_generation_before(message)
        foreign = {"type": "WorkerLost", "worker": "w999", "cause": "killed", "detail": "", "happened": 1.0}
        lost = {"type": "NodesLost", "nodes": [{"node": "a", "detail": ""}]}
        not_an_agents = self._chance.choice([lost, {"type": "StopAsked", "reason": "", "exit_code": 1}])
        return self._one_of([("foreign", json.dumps(foreign)), ("not its", json.dumps(not_an_agents)), *self._broken(message)])

    def _from_the_orchestrator(self, message: dict[str, Any]) -> tuple[str, str]:
        elsewhere = {"type": "StartWorker", "node": "elsewhere", "worker": "w998", "spare": True}
        unknown = {"type": "KillWorker", "worker": "w997", "reason": "nobody"}
        return self._one_of([("elsewhere", json.dumps(elsewhere)), ("unknown", json.dumps(unknown)), *self._broken(message)])

    def _one_of(self, inventions: list[tuple[str, str]]) -> tuple[str, str]:
        """By chance, but of every kind one: how many messages there are is not known."""
        return self._chance.choice([one for one in inventions if not self.sent[one[0]]] or inventions)

    def _broken(self, message: dict[str, Any]) -> list[tuple[str, str]]:
        text = json.dumps(message)
        field = self._chance.choice([name for name in message if name != "type"] or ["type"])
        return [
            ("cut", text[: self._chance.randrange(1, len(text))]),
            ("without a field", json.dumps({name: value for name, value in message.items() if name != "type"})),
            ("other type", json.dumps({**message, field: {"what": ["is", "this"]}})),
            ("other kind", json.dumps({**message, "type": "Nothing"})),
            ("deep", "[" * 50_000),
            ("nothing", ""),
        ]


def _of_the_generation_before(message: dict[str, Any]) -> str:
    return json.dumps({**message, "generation": message["generation"] - 1})


def _stale(earlier: _Earlier) -> str | None:
    """Any message of these, as if it came from the generation before; `None` when all are of the first one."""
    messages = (json.loads(line) for lines in earlier.values() for line in lines)
    return next((_of_the_generation_before(message) for message in messages if message.get("generation", 0) > 0), None)


async def _lines(source: ServerConnection | ClientConnection) -> AsyncIterator[str]:
    async for frame in source:
        assert isinstance(frame, str)
        for line in frame.splitlines():
            yield line
