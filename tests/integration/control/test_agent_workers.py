"""The agent and its workers: starting, ending, losses, strays. Real processes, real signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from tests.integration.agent_harness import agent
from tests.integration.processes import send, wait_for_end, wait_until
from tests.message_texts import has

from understudy.core import commands, events
from understudy.core.model import LossCause
from understudy.messages import agents, wire

WAIT = "import threading; threading.Event().wait()"


def test_a_worker_lives_from_start_to_release(tmp_path: Path) -> None:
    script = "import os, sys; print('rank', os.environ['RANK'], os.environ['ROLE_NAME'], sys.argv[1:])"

    async def scenario() -> None:
        async with agent(tmp_path, script, "--x", "1", role="trainer") as (process, orchestrator, mark):
            started = await orchestrator.worker("w0")
            assert isinstance(orchestrator.heard[0], events.NodeJoined)
            assert started.pid is not None
            assert os.getsid(started.pid) == started.pid, "a worker has a session of its own"
            await orchestrator.assign("w0", 3)
            await orchestrator.hears(events.Finished)
            pages = await orchestrator.sees(lambda pages: "w0" in pages.pages and pages.pages["w0"].step == 1)
            assert pages.node == "node0"
            await orchestrator.tell(commands.Release("w0", 0))
            await orchestrator.tell(commands.EndJob(0, "done"))
            assert await process.ends() == 0
            assert process.last_words() == {"exit_code": 0, "message": "done", "told": True}
            assert process.output() == "[rank 3 w0] rank 3 trainer ['--x', '1']\n"
            assert process.log("w0") == b"rank 3 trainer ['--x', '1']\n"
            assert not [e for e in orchestrator.heard if isinstance(e, events.WorkerLost)], "a release is not a loss"
            mark.wait_until_none()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("deed", "cause", "detail"),
    [
        ("os.kill(os.getpid(), 9)", LossCause.KILLED, "SIGKILL"),
        ("os.kill(os.getpid(), 15)", LossCause.KILLED, "SIGTERM"),
        ("os.kill(os.getpid(), 11)", LossCause.CRASHED, "SIGSEGV"),
        ("os.abort()", LossCause.CRASHED, "SIGABRT"),
        ("os._exit(7)", LossCause.EXITED, "code 7"),
        ("os._exit(0)", LossCause.EXITED, "code 0"),
    ],
)
def test_a_loss_is_reported_with_its_cause(tmp_path: Path, deed: str, cause: LossCause, detail: str) -> None:
    async def scenario() -> None:
        async with agent(tmp_path, f"import os; {deed}") as (_, orchestrator, _):
            await orchestrator.worker("w0")
            before = time.time()
            await orchestrator.assign("w0", 0)
            lost = await orchestrator.hears(events.WorkerLost)
            assert (lost.worker, lost.cause) == ("w0", cause)
            assert detail in lost.detail
            assert before <= lost.happened <= time.time()

    asyncio.run(scenario())


def test_a_failed_script_is_not_a_loss_and_its_last_message_is_received(tmp_path: Path) -> None:
    script = "import os; from understudy.core.events import *; say(ScriptFailed(me, 0, 5, 'E', 'tb', 3)); os._exit(3)"

    async def scenario() -> None:
        async with agent(tmp_path, script) as (process, orchestrator, _):
            started = await orchestrator.worker("w0")
            await orchestrator.assign("w0", 0)
            failed = await orchestrator.hears(events.ScriptFailed)
            assert failed.exit_code == 3
            await asyncio.to_thread(wait_for_end, started.pid)
            # The next worker's start comes after the agent's events about the first one.
            await orchestrator.worker("w1")
            assert not [e for e in orchestrator.heard if isinstance(e, events.WorkerLost)]
            await orchestrator.tell(commands.EndJob(3, "failed"))
            assert await process.ends() == 3

    asyncio.run(scenario())


def test_junk_and_impersonation_are_reported_and_ignored(tmp_path: Path) -> None:
    script = """
from understudy.core.events import *
from understudy.core.commands import *
from understudy.links.messages import encode
link.sendall(b'\\xff\\xfe junk\\n' + b'[' * 100000 + b'\\n')
link.sendall(encode(Finished('w1', 0)).encode() + b'\\n')
link.sendall(b'x' * 3_000_000 + b'\\n')
say(WorkerLost(me, 'killed', 'a lie', 0.0))
say(Notice(me, 0, 'the end of it'))
"""

    async def scenario() -> None:
        async with agent(tmp_path, script) as (_, orchestrator, _):
            await orchestrator.worker("w0")
            await orchestrator.assign("w0", 0)
            await orchestrator.hears(events.Notice, lambda e: e.text == "the end of it")
            reported = [e.text for e in orchestrator.heard if isinstance(e, events.Notice)][:-1]
            assert len(reported) == 3, "after three the rest is dropped in silence"
            assert has(reported[0], wire.NOT_A_MESSAGE)
            assert all(has(text, agents.WROTE_TO_OUR_SOCKET, worker="rank 0 w0") for text in reported)
            await orchestrator.hears(events.Finished, lambda e: e.worker == "w0")
            kinds = {type(e) for e in orchestrator.heard}
            assert events.WorkerLost not in kinds
            assert not [e for e in orchestrator.heard if isinstance(e, events.Finished) and e.worker == "w1"]

    asyncio.run(scenario())


STRAYS = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], start_new_session=True)
in_between = os.fork()
if in_between == 0:
    if os.fork() == 0:
        os.setsid()
        {WAIT}
    os._exit(0)
os.waitpid(in_between, 0)
if os.fork() == 0:
    {WAIT}
print('started', flush=True)
{WAIT}
"""


def test_what_a_lost_worker_started_ends_with_it_and_nothing_else_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with agent(tmp_path, STRAYS) as (process, orchestrator, mark):
            first = await orchestrator.worker("w0")
            second = await orchestrator.worker("w1")
            for rank, name in enumerate(("w0", "w1")):
                await orchestrator.assign(name, rank)
            await asyncio.to_thread(wait_until, lambda: process.output().count("started") == 2, "all strays")
            # The agent's process; each worker is one process and three strays (the one in between has ended).
            await asyncio.to_thread(wait_until, lambda: len(mark.pids()) == 1 + 4 + 4, "everybody to be there")
            send(first.pid, signal.SIGKILL)
            await orchestrator.hears(events.WorkerLost)
            await asyncio.to_thread(wait_until, lambda: len(mark.pids()) == 1 + 4, "the strays of w0 to end")
            assert second.pid in mark.pids()
            await orchestrator.tell(commands.KillWorker("w1", "for the test"))
            await orchestrator.hears(events.WorkerLost, lambda e: e.worker == "w1")
            await asyncio.to_thread(wait_until, lambda: mark.pids() == [process.process.pid], "the strays of w1 to end")

    asyncio.run(scenario())


def test_a_stopped_worker_can_be_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with agent(tmp_path, WAIT) as (_, orchestrator, _):
            started = await orchestrator.worker("w0")
            send(started.pid, signal.SIGSTOP)
            await orchestrator.tell(commands.KillWorker("w0", "hung"))
            lost = await orchestrator.hears(events.WorkerLost)
            assert lost.cause is LossCause.KILLED

    asyncio.run(scenario())


def test_the_agent_ends_with_the_command_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with agent(tmp_path, STRAYS) as (process, orchestrator, mark):
            await orchestrator.worker("w0")
            await orchestrator.assign("w0", 0)
            await asyncio.to_thread(wait_until, lambda: "started" in process.output(), "the strays")
            process.control.close()
            await process.ends()
            await asyncio.to_thread(mark.wait_until_none)

    asyncio.run(scenario())


def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    script = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {WAIT}"

    async def scenario() -> None:
        # On --at-start the script runs in the main thread before the worker is warm: signals can be set there.
        async with agent(tmp_path, script, "--at-start", stop=0.5) as (process, orchestrator, mark):
            await orchestrator.tell(commands.StartWorker("node0", "w0", False))
            await asyncio.to_thread(wait_until, lambda: "deaf" in process.output(), "the worker to be deaf")
            process.process.send_signal(signal.SIGTERM)
            assert await process.ends() == 143
            await asyncio.to_thread(mark.wait_until_none)

    asyncio.run(scenario())


def test_a_worker_that_cannot_be_started_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with agent(tmp_path, WAIT, worker_command=("/nonexistent",)) as (_, orchestrator, _):
            await orchestrator.hears(events.NodeJoined)
            await orchestrator.tell(commands.StartWorker("node0", "w0", False))
            refused = await orchestrator.hears(events.StartRefused)
            assert has(refused.detail, agents.CANNOT_START) and "No such file" in refused.detail

    asyncio.run(scenario())


def test_workers_that_are_lost_leave_no_descriptor_in_the_agent(tmp_path: Path) -> None:
    """A job may lose thousands, one after another, and a process has a limit for them."""

    async def scenario() -> None:
        async with agent(tmp_path, WAIT) as (process, orchestrator, _):
            agent_pid = process.process.pid

            async def lose(number: int) -> None:
                started = await orchestrator.worker(f"w{number}")
                send(started.pid, signal.SIGKILL)
                await orchestrator.hears(events.WorkerLost, lambda event: event.worker == f"w{number}")

            await lose(0)  # with the first one come the template and what else an agent needs
            wait_until(lambda: not any(".log" in link for link in descriptors(agent_pid)), "the first worker's log is closed")
            before = len(descriptors(agent_pid))
            for number in range(1, 6):
                await lose(number)
            wait_until(lambda: len(descriptors(agent_pid)) <= before, "all that the others needed is closed, too")
            assert not any(".log" in link for link in descriptors(agent_pid))

    asyncio.run(scenario())


def descriptors(pid: int) -> list[str]:
    """Return the open files of a process."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(link))
    return found
