"""Signals for the script reach the workers that have a handler, and end none. Workers are real processes without a link."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from understudy.agent.notices import pass_on
from understudy.agent.worker import Worker
from understudy.messages import agents

HEARS = "signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'heard\\n'))"
IGNORES = "signal.signal(signal.SIGUSR1, signal.SIG_IGN)"
OTHER = "signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b'heard\\n'))"


class Workers:
    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, rank: int, code: str) -> Worker:
        code = f"import os, signal\n{code}\nprint('ready', flush=True)\nwhile True: signal.pause()"
        process = subprocess.Popen([sys.executable, "-IS", "-c", code], stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert self.line(process) == "ready\n"
        return worker(rank, process.pid)

    def line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()


def worker(rank: int, pid: int) -> Worker:
    return Worker(f"w{rank}", pid, os.pidfd_open(pid), cast("Any", None), rank=rank)


@pytest.fixture
def workers() -> Iterator[Workers]:
    found = Workers()
    yield found
    for process in found.processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_script_with_a_handler_gets_it(workers: Workers) -> None:
    assert pass_on(signal.SIGUSR1, [workers.start(0, HEARS)]) is None
    assert workers.line(workers.processes[0]) == "heard\n"


@pytest.mark.parametrize("code", ["", IGNORES, OTHER])
def test_one_without_does_not_and_the_user_is_informed(code: str, workers: Workers) -> None:
    assert pass_on(signal.SIGUSR1, [workers.start(3, code)]) == agents.SIGNAL_KEPT(signal="SIGUSR1", ranks="rank 3")
    assert workers.processes[0].poll() is None


def test_those_without_are_reported_together(workers: Workers) -> None:
    mixed = [workers.start(rank, code) for rank, code in ((7, ""), (5, HEARS), (2, ""))]
    assert pass_on(signal.SIGUSR1, mixed) == agents.SIGNAL_KEPT(signal="SIGUSR1", ranks="ranks 2, 7")
    assert workers.line(workers.processes[1]) == "heard\n"


def test_one_that_has_ended_is_no_matter(workers: Workers) -> None:
    """Whether or not its end was collected."""
    there = workers.start(0, HEARS)
    process = workers.processes[0]
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    uncollected = pass_on(signal.SIGUSR1, [there])
    process.wait()
    assert pass_on(signal.SIGUSR1, [there]) is None and pass_on(signal.SIGUSR1, []) is None
    assert uncollected is None
