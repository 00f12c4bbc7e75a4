"""A run of the tests leaves no process running, however it ends. Each of these runs pytest on a separate file."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import watchdog
from tests.integration.processes import LIMIT, Mark, is_alive, marked, send, wait_for_end, wait_until

ROOT = Path(__file__).parents[2]
# A run that does not end writes down where it is, and so does each of its workers.
CONFTEST = f"""
import faulthandler, os
from pathlib import Path
from tests.watchdog import pytest_configure, pytest_unconfigure

faulthandler.dump_traceback_later({LIMIT * 3 / 4}, file=Path(__file__).with_name(f"stacks-{{os.getpid()}}").open("w"))
"""
# It has a session of its own, takes no other signal than SIGKILL, and has a child alike, which outlives it otherwise.
STRAY = """
import os, signal, sys, threading
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
parent = os.fork()
if not parent:
    os.setpgid(0, 0)
name = f"{sys.argv[1]}-{'parent' if parent else 'child'}"
with open(name + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(name + ".new", name)
threading.Event().wait()
"""
TESTS = f"""
import os, subprocess, sys, threading
from pathlib import Path
import pytest

FOLDER = Path(__file__).parent
STRAY = {STRAY!r}

@pytest.mark.parametrize("number", range(2))
def test_that_leaves_something(number):
    (FOLDER / f"runner-{{number}}").write_text(str(os.getpid()))
    subprocess.Popen([sys.executable, "-c", STRAY, str(FOLDER / f"stray-{{number}}")], start_new_session=True)
    if (FOLDER / "waits").exists():
        threading.Event().wait()
    while not (FOLDER / f"stray-{{number}}-child").exists() or not (FOLDER / f"stray-{{number}}-parent").exists():
        pass
"""


@dataclass
class Run:
    """A pytest run. `bystander` is a process of another program."""

    folder: Path
    mark: Mark
    process: subprocess.Popen[str]
    bystander: subprocess.Popen[bytes]

    def number(self, name: str) -> int:
        """The process id in this file, once it is there."""
        wait_until(lambda: self.process.poll() is not None or self._there(name), name)
        assert self._there(name), self.process.communicate()[1]
        return int((self.folder / name).read_text())

    def _there(self, name: str) -> bool:
        return (self.folder / name).exists() and bool((self.folder / name).read_text())

    def strays(self, number: int) -> list[int]:
        return [self.number(f"stray-{number}-{which}") for which in ("parent", "child")]

    def leaves_nothing(self) -> str:
        """Wait for the end of everything, and return the output. The bystander is alive."""
        try:
            _, errors = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired as error:
            stacks = [f"{path.name}:\n{path.read_text()}" for path in sorted(self.folder.glob("stacks-*"))]
            printed = (self.folder / "output.txt").read_text()
            alive = "\n".join(f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes()[:300]!r}" for pid in self.mark.pids())
            raise AssertionError("\n\n".join([str(error), str(error.stderr), printed, alive, *stacks])) from None
        self.mark.wait_until_none()
        assert self.bystander.poll() is None
        return errors


@contextlib.contextmanager
def run(folder: Path, workers: int, *, waits: bool) -> Iterator[Run]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    if waits:
        (folder / "waits").touch()
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder), str(folder)]
    words += ["-p", "xdist", "-n", str(workers)] if workers else []
    with marked() as mark, (folder / "output.txt").open("w") as output:
        environment = mark.environment(PYTHONPATH=str(ROOT), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="")
        bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=output, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            yield Run(folder, mark, process, bystander)
        finally:
            process.kill()
            process.communicate()
            bystander.kill()
            bystander.wait()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_run_that_is_interrupted_leaves_nothing(tmp_path: Path, number: signal.Signals, workers: int) -> None:
    with run(tmp_path, workers, waits=True) as started:
        strays = [pid for test in range(max(1, workers)) for pid in started.strays(test)]
        assert set(strays) <= set(started.mark.pids())
        send(started.process.pid, number)
        assert "left behind" in started.leaves_nothing()
        for pid in strays:
            wait_for_end(pid)


def test_a_worker_of_xdist_that_is_killed_leaves_nothing_and_the_others_go_on(tmp_path: Path) -> None:
    with run(tmp_path, 2, waits=True) as started:
        first, second = started.strays(0), started.strays(1)
        send(started.number("runner-0"), signal.SIGKILL)
        for pid in first:
            wait_for_end(pid)
        assert all(map(is_alive, second)) and started.process.poll() is None
        send(started.process.pid, signal.SIGKILL)
        started.leaves_nothing()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_passes_leaves_nothing_and_reports_what_there_was(tmp_path: Path, workers: int) -> None:
    with run(tmp_path, workers, waits=False) as started:
        errors = started.leaves_nothing()
        assert started.process.returncode == 0, (tmp_path / "output.txt").read_text()
        for number in range(2):
            assert all(f"{pid} (" in errors for pid in started.strays(number))


def test_a_process_without_the_mark_is_not_touched(tmp_path: Path) -> None:
    """One whose mark only begins alike, or has it in another variable; the one whose mark is among several is ended."""
    with marked() as mark:
        variables = [{watchdog.NAME: "0123456789"}, {"OTHER": "01234567"}, {watchdog.NAME: "x:01234567:y"}, {watchdog.NAME: "x"}]
        processes = [subprocess.Popen(["sleep", "1000"], env=mark.environment(**more)) for more in variables]
        (ended,) = watchdog.end("01234567")
        assert ended == f"{processes[2].pid} (sleep 1000)"
        assert processes[2].wait(LIMIT) == -signal.SIGKILL
        assert [process.poll() for process in processes] == [None, None, -signal.SIGKILL, None]
        mark.kill()
        for process in processes:
            process.wait(LIMIT)
