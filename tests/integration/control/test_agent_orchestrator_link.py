"""The agent and a restless orchestrator: training goes on without it, and nothing that happened meanwhile is lost."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.integration.agent_harness import agent
from tests.integration.processes import LIMIT, is_alive, send, wait_for_end, wait_until
from tests.message_texts import has

from understudy.core import commands, events
from understudy.links.messages import Seen
from understudy.messages import agents

WAIT = "import threading; threading.Event().wait()"


def test_events_while_the_orchestrator_was_away_are_reported_when_it_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with agent(tmp_path, WAIT) as (_, orchestrator, _):
            first = await orchestrator.worker("w0")
            second = await orchestrator.worker("w1")
            await orchestrator.stop()
            send(first.pid, signal.SIGKILL)
            await asyncio.to_thread(wait_for_end, first.pid)
            mark = len(orchestrator.heard)
            await orchestrator.start()
            lost = await orchestrator.hears(events.WorkerLost, after=mark)
            assert lost.worker == "w0"
            await orchestrator.hears(events.WorkerWarm, lambda e: e.worker == "w1", after=mark)
            again = orchestrator.heard[mark:]
            assert isinstance(again[0], events.NodeJoined)
            repeated = [e for e in again if isinstance(e, events.WorkerStarted)]
            assert [(e.worker, e.pid) for e in repeated] == [("w1", second.pid)]
            # A repeated command is answered, not carried out twice.
            mark = len(orchestrator.heard)
            await orchestrator.tell(commands.StartWorker("node0", "w1", False))
            started = await orchestrator.hears(events.WorkerStarted, after=mark)
            assert started.pid == second.pid

    asyncio.run(scenario())


def test_the_messages_of_a_generation_are_repeated_until_the_next_one(tmp_path: Path) -> None:
    script = """
from understudy.core.events import *
from understudy.core.model import *
say(Committed(me, 0, 0, 1))
abort = commands.get()
say(Quiesced(me, abort.generation, Position(4, VotePhase.VOTED), (), 4))
commands.get()
"""

    async def scenario() -> None:
        async with agent(tmp_path, script) as (_, orchestrator, _):
            await orchestrator.worker("w0")
            await orchestrator.assign("w0", 0)
            await orchestrator.hears(events.Committed)
            await orchestrator.tell(commands.Abort("w0", 1, "127.0.0.1:1", (1,), "test"))
            quiesced = await orchestrator.hears(events.Quiesced)
            mark = len(orchestrator.heard)
            await orchestrator.stop()
            await orchestrator.start()
            assert await orchestrator.hears(events.Quiesced, after=mark) == quiesced
            kinds = [type(e) for e in orchestrator.heard[mark:]]
            assert kinds == [events.NodeJoined, events.WorkerStarted, events.WorkerWarm, events.Quiesced]

    asyncio.run(scenario())


def test_a_wrong_token_ends_the_agent_with_a_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with agent(tmp_path, WAIT, token="wrong") as (process, orchestrator, _):
            assert await process.ends() == 1
            assert has(process.last_words()["message"], agents.REFUSED, reason="HTTP status 401")
            assert orchestrator.connections == 0

    asyncio.run(scenario())


@pytest.mark.gate
@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_only_the_orchestrator_itself_sends_an_agent_away_whose_workers_train(tmp_path: Path, status: int) -> None:
    """Something else may answer while it is away: an ingress without a backend, another orchestrator."""

    async def scenario() -> None:
        async with agent(tmp_path, WAIT) as (process, orchestrator, _):
            worker = await orchestrator.worker("w0")
            await orchestrator.stop()
            orchestrator.refuses, orchestrator.proves = status, False
            await orchestrator.start()
            await asyncio.to_thread(wait_until, lambda: orchestrator.refused >= 3, "it is asked again and again", LIMIT)
            assert process.process.poll() is None and is_alive(worker.pid)
            mark, orchestrator.refuses = len(orchestrator.heard), 0
            await orchestrator.hears(events.WorkerStarted, lambda e: e.pid == worker.pid, after=mark)
            await orchestrator.stop()
            orchestrator.refuses, orchestrator.proves = status, True
            await orchestrator.start()
            assert await process.ends() == 1
            assert has(process.last_words()["message"], agents.REFUSED, reason=f"HTTP status {status}")
            await asyncio.to_thread(wait_for_end, worker.pid)

    asyncio.run(scenario())


def test_the_token_does_not_reach_the_script(tmp_path: Path) -> None:
    script = "import os; print(sorted(k for k in os.environ if k.startswith('UNDERSTUDY')))"

    async def scenario() -> None:
        async with agent(tmp_path, script) as (process, orchestrator, _):
            await orchestrator.worker("w0")
            await orchestrator.assign("w0", 0)
            await orchestrator.hears(events.Finished)
            await orchestrator.tell(commands.EndJob(0, ""))
            assert await process.ends() == 0
            assert "UNDERSTUDY_WORKER" in process.output()
            assert "UNDERSTUDY_TOKEN" not in process.output()

    asyncio.run(scenario())


def test_evidence_while_the_orchestrator_was_away_is_reported_in_its_present_state(tmp_path: Path) -> None:
    """Reported once, in its last state and not those in between: it is over by then."""
    state = tmp_path / "state"
    script = tmp_path / "check"
    script.write_text(f"#!/bin/sh\ncat {state}\necho x >> {tmp_path}/runs\n")
    script.chmod(0o755)
    finding = '[{"subject": "node", "kind": "hot", "severity": "suspect", "until": %s}]'
    state.write_text("[]")
    file = f'[[command]]\nname = "fan"\nargv = ["{script}"]\nevery = 0.01\noutput = "json"\n'

    def found(text: str) -> None:
        """The check has run with it."""
        (tmp_path / "unfinished").write_text(text)
        (tmp_path / "unfinished").rename(state)
        runs = (tmp_path / "runs").stat().st_size
        wait_until(lambda: (tmp_path / "runs").stat().st_size > runs + 4, "two runs")

    async def scenario() -> None:
        async with agent(tmp_path, WAIT, detectors='off = ["kernel"]\n' + file) as (process, orchestrator, _):
            await orchestrator.worker("w0")
            await asyncio.to_thread(found, finding % "0")
            assert (await orchestrator.hears(Seen)).until == 0
            await orchestrator.stop()
            await asyncio.to_thread(found, finding % "2e9")
            await asyncio.to_thread(found, finding % "5")
            await asyncio.to_thread(found, "[]")
            mark = len(orchestrator.heard)
            await orchestrator.start()
            seen = await orchestrator.hears(Seen, after=mark)
            assert seen.until == 5.0
            await orchestrator.hears(events.WorkerStarted, after=mark)
            assert {message.until for message in orchestrator.heard[mark:] if isinstance(message, Seen)} == {5.0}
            wait_until(
                lambda: has(process.errors(), agents.DETECTORS_LOOK, node="node0") and "command:fan" in process.errors(), "who looks"
            )

    asyncio.run(scenario())
