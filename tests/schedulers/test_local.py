"""The scheduler for this machine, with real processes."""

from __future__ import annotations

import os
import select
import signal
import sys

import pytest
from tests.message_texts import refused

from understudy.messages import schedulers
from understudy.schedulers.base import Ended, Work
from understudy.schedulers.local import LocalScheduler
from understudy.schedulers.registry import find

LIMIT = 60.0


def test_ours_is_found_by_its_name() -> None:
    assert isinstance(find("local"), LocalScheduler)


def test_it_starts_drains_and_reports() -> None:
    """One process ends by itself, and one waits until it is asked to end."""
    scheduler = LocalScheduler()
    waiting = (sys.executable, "-c", "import os, signal; os.write(int(os.environ['READY']), b'.'); signal.pause()")
    ready, theirs = os.pipe()
    node = scheduler.add_node(Work("n0", waiting, {"READY": str(theirs)}, (theirs,)))
    job = scheduler.submit(Work("job", (sys.executable, "-c", "raise SystemExit(3)")))
    assert os.read(ready, 1) == b"." and node.ended() is None and not node.wait(0.0)
    with refused(ValueError, schedulers.RUNS_ALREADY, name="n0"):
        scheduler.add_node(Work("n0", waiting))
    scheduler.drain_node("n0")
    assert job.wait(LIMIT) and node.wait(LIMIT)
    assert scheduler.status() == {"job": "exit code 3", "n0": "killed by SIGTERM"}
    assert select.select([node, job], [], [], 0.0)[0] == [node, job]
    for one in (job, node):
        one.close()
    again = scheduler.add_node(Work("n0", (sys.executable, "-c", "")))
    assert again.wait(LIMIT) and scheduler.status()["n0"] == "exit code 0", "its name was free again"
    again.close()
    for descriptor in (ready, theirs):
        os.close(descriptor)
    with pytest.raises(KeyError):
        scheduler.drain_node("n1")


@pytest.mark.parametrize("ignored", [(), (signal.SIGUSR1, signal.SIGUSR2)])
def test_what_it_starts_ignores_what_it_is_to_and_nothing_else(ignored: tuple[signal.Signals, ...]) -> None:
    found = "[number for number in (10, 12, 15) if signal.getsignal(number) is signal.SIG_IGN]"
    code = f"import signal; raise SystemExit({found} != {[*map(int, ignored)]})"
    node = LocalScheduler(ignored).add_node(Work("n0", (sys.executable, "-IS", "-c", code)))
    assert node.wait(LIMIT) and node.ended() == Ended("exit code 0", False, 0)
    node.close()
