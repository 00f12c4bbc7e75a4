"""A full disk under a running job, on a real small file system: nothing of it is a reason to end training."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.processes import pid_of, send, wait_until

from understudy.common.page_view import Activity
from understudy.links.lifeline import Lifeline
from understudy.links.page import SIZE, PageReader, PageWriter
from understudy.messages import worker_processes

SCRIPT = """
import fcntl, sys
with open(sys.argv[1]) as over:
    fcntl.flock(over, fcntl.LOCK_SH)  # once the test has let go of it
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filling").open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        while True:
            try:
                file.write(bytes(SIZE))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return


def test_a_page_for_which_there_is_no_room_is_memory(small: Path) -> None:
    fill(small)
    path = small / "w0.page"
    page = PageWriter(path)
    page.enter(Activity.RUNNING, 3)
    page.beat(1)
    assert "No space left" in page.trouble and not path.exists()
    with pytest.raises(FileNotFoundError):
        PageReader(path)
    Lifeline(None).hold()
    (small / "filling").unlink()
    again = PageWriter(path)
    assert not again.trouble and path.stat().st_blocks * 512 >= SIZE


def test_orchestrator_and_agent_are_started_again_on_a_full_disk(small: Path, tmp_path: Path) -> None:
    run, over, script = small / "run", tmp_path / "over", tmp_path / "script.py"
    script.write_text(SCRIPT)
    told, held = tmp_path / "told.txt", over.open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    command = [sys.executable, "-m", "understudy.cli", "run", "--nproc-per-node", "2", "--spares", "1", "--run-dir", str(run)]
    with told.open("wb") as file:
        job = subprocess.Popen([*command, str(script), str(over)], stdout=file, stderr=file)
    try:
        wait_until(lambda: _answers(run, "training"), "the job trains")
        fill(small)
        first = _pid(job.pid, "understudy.orchestrator")
        for module in ("understudy.orchestrator", "understudy.agent"):
            before = pid_of(partial(_pid, job.pid, module))
            send(before, signal.SIGKILL)
            wait_until(partial(_another, job.pid, module, before), f"{module} is started again")
        wait_until(lambda: _answers(run, "training"), "the job is led again")
        send(pid_of(lambda: _status(run)["spares"][0]), signal.SIGKILL)  # it may be starting still
        wait_until(lambda: worker_processes.NO_PAGE.code in told.read_text(), "the next spare says what it lacks")
        wait_until(lambda: [one["state"] for one in _status(run).get("spares", ())] == ["warm"], "and can take a rank all the same")
        again = _pid(job.pid, "understudy.orchestrator")
        assert first != again
        (small / "filling").unlink()
        held.close()
        assert job.wait(120) == 0, told.read_text()
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait(60)
        held.close()
    assert "SIGBUS" not in told.read_text()


def _another(parent: int, module: str, before: int) -> bool:
    return _pid(parent, module) not in (None, before)


def _pid(parent: int, module: str) -> int | None:
    """Of the command line's child that runs this module; None if there is none."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        with contextlib.suppress(OSError):
            if module in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                return int(child)
    return None


def _status(run: Path) -> dict[str, Any]:
    asked = [sys.executable, "-m", "understudy.cli", "status", "--run-dir", str(run), "--json"]
    found = subprocess.run(asked, capture_output=True, text=True)
    with contextlib.suppress(ValueError):
        return cast("dict[str, Any]", json.loads(found.stdout))
    return {}


def _answers(run: Path, state: str) -> bool:
    status = _status(run)
    return status.get("state") == state and len(status["ranks"]) == 2
