"""Run the check that a node must pass before it is trusted again (`understudy.checks`), in a separate process with a time limit.

A thread starts the process and waits for it, so that no other code collects its exit status. It ends if the agent does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from understudy.checks.base import Report, Verdict
from understudy.checks.options import Options
from understudy.common.dying import dying_with
from understudy.common.names import TOKEN_VARIABLE
from understudy.core.events import NodeChecked
from understudy.messages import agents

LIMIT = 600.0  # seconds
MOST_OUTPUT = 1 << 20  # bytes
MOST_DETAIL = 1000  # characters of the reason for a failure


class NodeCheck:
    """The check of this node; at most one runs at a time."""

    def __init__(self, node: str, folder: Path, tell: Callable[[NodeChecked], None]) -> None:
        """Create the check. `folder`: on the disk that is tested. `tell` is called on another thread."""
        self._node = node
        self._folder = folder
        self._tell = tell
        self._running: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def begin(self) -> None:
        """Begin a check. Does nothing if one is running, which will report its result."""
        if self._running is None or not self._running.is_alive():
            self._running = threading.Thread(target=self._run, name="understudy-check", daemon=True)
            self._running.start()

    def close(self) -> None:
        """End the check with all its processes. Nothing is reported any more."""
        self._closed = True
        self._kill()

    def _run(self) -> None:
        try:
            answer = self._judged()
        except (OSError, subprocess.SubprocessError) as error:
            answer = NodeChecked(self._node, False, agents.CHECK_IMPOSSIBLE(reason=str(error)))
        if not self._closed:
            self._tell(answer)

    def _judged(self) -> NodeChecked:
        # Testing the network needs a second host, and detectors watch this node all the time.
        options = Options(folder=str(self._folder), skip=("network", "detectors"))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "understudy.checks", "--json", options.model_dump_json()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=dying_with(os.getpid(), signal.SIGKILL),
            env={name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE},
        )
        try:
            printed, _ = self._process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.communicate()
            return NodeChecked(self._node, False, agents.CHECK_TOO_LONG(seconds=LIMIT))
        try:
            report = Report.model_validate_json(printed[:MOST_OUTPUT])
        except ValidationError:
            return NodeChecked(self._node, False, agents.CHECK_WITHOUT_REPORT(code=self._process.returncode))
        failed = [f"{result.check}: {result.detail}" for result in report.results if result.verdict is Verdict.FAILED]
        if report.passed != (self._process.returncode == 0):
            return NodeChecked(self._node, False, agents.CHECK_CONTRADICTS(code=self._process.returncode))
        if not failed and not report.passed:
            return NodeChecked(self._node, False, agents.CHECK_TRIED_NOTHING())
        return NodeChecked(self._node, report.passed, "; ".join(failed)[:MOST_DETAIL])

    def _kill(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
