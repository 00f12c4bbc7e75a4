"""The scheduler of this machine: orchestrator and agent are children of the calling process, and end with it.

They are in separate sessions, so that Ctrl-C at the terminal reaches only the caller; the kernel sends them SIGTERM when the thread that
has started them ends (`common.dying`).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Collection

from understudy.common.console import standard_input
from understudy.common.dying import dying_with
from understudy.messages import schedulers
from understudy.schedulers.base import Ended, Scheduler, Work


def _prepared(prepare: Callable[[], None], ignored: Collection[signal.Signals]) -> Callable[[], None]:
    def both() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        prepare()

    return both


class Child:
    """A process with a pidfd."""

    def __init__(self, work: Work, ignored: Collection[signal.Signals]) -> None:
        self._process = subprocess.Popen(
            work.command,
            stdin=standard_input() if work.reads else subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=work.descriptors,
            preexec_fn=_prepared(dying_with(os.getpid(), signal.SIGTERM), ignored),
            env={**os.environ, **work.environment},
        )
        self._pidfd = os.pidfd_open(self._process.pid)

    def fileno(self) -> int:
        return self._pidfd

    def ended(self) -> Ended | None:
        code = self._process.poll()
        if code is None:
            return None
        return Ended(f"killed by {signal.Signals(-code).name}", True) if code < 0 else Ended(f"exit code {code}", False, code)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        os.close(self._pidfd)


class LocalScheduler(Scheduler):
    name = "local"

    def __init__(self, ignored: Collection[signal.Signals] = ()) -> None:
        """Create the scheduler. `ignored`: signals that its processes ignore."""
        self._ignored = ignored
        self._jobs: dict[str, Child] = {}
        self._nodes: dict[str, Child] = {}

    def submit(self, job: Work) -> Child:
        return self._start(job, self._jobs)

    def add_node(self, node: Work) -> Child:
        return self._start(node, self._nodes)

    def _start(self, work: Work, among: dict[str, Child]) -> Child:
        if self.status().get(work.name) == "running":
            raise ValueError(schedulers.RUNS_ALREADY(name=work.name))
        among[work.name] = child = Child(work, self._ignored)
        return child

    def drain_node(self, name: str) -> None:
        self._nodes[name].signal(signal.SIGTERM)

    def status(self) -> dict[str, str]:
        found = {name: child.ended() for name, child in (*self._jobs.items(), *self._nodes.items())}
        return {name: "running" if ended is None else ended.how for name, ended in found.items()}
