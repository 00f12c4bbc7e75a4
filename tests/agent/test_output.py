"""What is kept of workers' pipes while workers come and go."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from tests.integration.processes import wait_until

from understudy.agent.output import Output, Route


def test_the_pipe_of_a_newcomer_with_the_number_of_an_ended_one_stays_open(tmp_path: Path) -> None:
    """The kernel reuses the lowest free number: a task that waits for the old stream must not close the new one."""

    async def scenario() -> list[str]:
        lines: list[str] = []
        output = Output(tmp_path, lines.append)
        old, old_end = os.pipe()
        other, other_end = os.pipe()
        output.attach("w0", Route("[w0] "), old, other)
        # Opened on another thread: it takes no number from here on.
        await asyncio.to_thread(wait_until, (tmp_path / "w0.log").exists, "the log")
        drained = asyncio.create_task(output.drain("w0", patience=60.0))
        os.close(old_end)
        await asyncio.to_thread(wait_until, lambda: not Path(f"/proc/self/fd/{old}").exists(), "the reader to close the old one")
        reader, new_end = os.pipe()
        more, more_end = os.pipe()
        new = reader if reader == old else fcntl.fcntl(reader, fcntl.F_DUPFD, old)
        assert new == old
        output.attach("w1", Route("[w1] "), new, more)
        os.close(other_end)
        await drained
        os.write(new_end, b"still heard\n")
        os.close(new_end)
        os.close(more_end)
        await output.drain("w1", patience=60.0)
        await output.close(patience=60.0)
        return lines

    assert asyncio.run(scenario()) == ["[w1] still heard\n"]
