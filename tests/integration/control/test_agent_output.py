"""Workers' output on its way to the terminal and the log: junk, floods, full disks, closed terminals."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.integration.agent_harness import AgentProcess, Orchestrator, agent
from tests.integration.processes import wait_until
from tests.message_texts import codes

from understudy.core import commands, events
from understudy.messages import agents


async def _finish(process: AgentProcess, orchestrator: Orchestrator) -> None:
    """One worker runs its script to the end, then the job ends."""
    await orchestrator.worker("w0")
    await orchestrator.assign("w0", 0)
    await orchestrator.hears(events.Finished)
    await orchestrator.tell(commands.Release("w0", 0))
    await orchestrator.tell(commands.EndJob(0, ""))
    assert await process.ends() == 0


def test_junk_redraws_and_endless_lines(tmp_path: Path) -> None:
    script = """
import os
os.write(1, b'bytes \\xff\\x00\\x07 end\\n')
os.write(1, b'10%\\r20%\\r100%\\n')
os.write(1, b'y' * 200_000 + b'\\n')
os.write(2, 'f\\u00fcr'.encode() + b'\\r\\n')
os.write(1, b'no newline')
"""
    raw = b"bytes \xff\x00\x07 end\n10%\r20%\r100%\n" + b"y" * 200_000 + b"\n"

    async def scenario() -> None:
        async with agent(tmp_path, script) as (process, orchestrator, _):
            await _finish(process, orchestrator)
            lines = process.output().splitlines()
            assert lines[0] == "[rank 0 w0] bytes \\xff\\x00\\x07 end"
            assert lines[1] == "[rank 0 w0] 100%"
            assert "".join(line.removeprefix("[rank 0 w0] ") for line in lines[2:-1]) == "y" * 200_000
            assert lines[-1] == "[rank 0 w0] no newline"
            assert process.errors() == "[rank 0 w0] für\n"
            log = process.log("w0")
            assert log.replace("für\r\n".encode(), b"", 1) == raw + b"no newline"

    asyncio.run(scenario())


def test_the_last_output_before_a_hang_is_shown(tmp_path: Path) -> None:
    script = "import os, threading; os.write(1, b'loading ...'); threading.Event().wait()"

    async def scenario() -> None:
        async with agent(tmp_path, script) as (process, orchestrator, _):
            await orchestrator.worker("w0")
            await orchestrator.assign("w0", 0)
            await asyncio.to_thread(wait_until, lambda: "[rank 0 w0] loading ...\n" in process.output(), "the prompt")

    asyncio.run(scenario())


def test_a_terminal_that_takes_nothing_does_not_stop_the_training(tmp_path: Path) -> None:
    size = 40 << 20
    script = f"""
import os
line = b'z' * 1023 + b'\\n'
for _ in range({size} // 1024):
    os.write(1, line)
"""

    async def scenario() -> None:
        reader, writer = os.pipe()  # no process reads
        try:
            async with agent(tmp_path, script, stdout=writer) as (process, orchestrator, _):
                await _finish(process, orchestrator)
                assert len(process.log("w0")) == size, "the log has it all"
        finally:
            os.close(reader)
            os.close(writer)

    asyncio.run(scenario())


def test_a_terminal_that_was_closed_does_not_stop_the_training(tmp_path: Path) -> None:
    async def scenario() -> None:
        reader, writer = os.pipe()
        async with agent(tmp_path, "print('x' * 100)\n" * 50, stdout=writer) as (process, orchestrator, _):
            os.close(writer)
            os.close(reader)
            await _finish(process, orchestrator)
            assert process.log("w0").count(b"\n") == 50

    asyncio.run(scenario())


def test_a_full_disk_is_reported_once_and_training_goes_on(tmp_path: Path) -> None:
    script = "for i in range(2000): print('line', i, flush=True)"

    async def scenario() -> None:
        (tmp_path / "workers").mkdir()
        (tmp_path / "workers" / "w0.log").symlink_to("/dev/full")
        async with agent(tmp_path, script) as (process, orchestrator, _):
            await _finish(process, orchestrator)
            assert process.output().count("\n") == 2000, "the terminal has it all"
            assert codes(process.errors()) == [agents.LOG_UNWRITTEN.code]

    asyncio.run(scenario())


def test_torchrun_filters_and_files(tmp_path: Path) -> None:
    script = "import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')"

    async def scenario() -> None:
        logs = tmp_path / "logs"
        settings: dict[str, Any] = {
            "redirects": [(0, 1)],
            "tees": [(0, 2)],
            "shown_local_ranks": [0],
            "log_dir": str(logs),
        }
        async with agent(tmp_path, script, **settings) as (process, orchestrator, _):
            for rank, name in enumerate(("w0", "w1")):
                await orchestrator.worker(name)
                await orchestrator.assign(name, rank, TORCHELASTIC_RUN_ID="job")
                await orchestrator.hears(events.Finished, lambda e, name=name: e.worker == name)  # type: ignore[misc]
                await orchestrator.tell(commands.Release(name, 0))
            await orchestrator.tell(commands.EndJob(0, ""))
            assert await process.ends() == 0
            assert process.output() == ""
            assert process.errors() == "[rank 0 w0] err\n"
            assert process.log("w1").count(b"\n") == 2
            files = {str(path.relative_to(logs)).split("/", 1)[1]: path.read_text() for path in logs.rglob("*.log")}
            assert files == {"attempt_0/0/stdout.log": "out\n", "attempt_0/0/stderr.log": "err\n"}

    asyncio.run(scenario())
