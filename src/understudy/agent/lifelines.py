"""Detect workers that have begun to end by their lifelines (`links.lifeline`), long before their pidfds report it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from understudy.agent import processes
from understudy.agent.worker import Worker
from understudy.common.names import page_path
from understudy.links.lifeline import Lifeline

DYING_EVERY = 0.001  # seconds between two checks of a worker that has begun to end, until the kernel reports how
DYING_LIMIT = 5.0  # after that, its pidfd reports it


class Lifelines:
    """Watches lifelines. `on_dying` is called on the event loop, with how the worker ends and the unix time at which it began to."""

    def __init__(self, run_dir: Path, on_dying: Callable[[Worker, processes.Ending, float], None]) -> None:
        self._run_dir = run_dir
        self._on_dying = on_dying
        self._loop = asyncio.get_running_loop()

    def watch(self, worker: Worker) -> None:
        """Wait for the worker's end on a thread, which costs nothing."""
        try:
            lifeline = Lifeline(page_path(self._run_dir, worker.name))
        except (OSError, ValueError):
            return  # no page: its pidfd will report it

        def wait() -> None:
            if lifeline.wait():
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._look, worker, time.time(), time.monotonic() + DYING_LIMIT)

        threading.Thread(target=wait, name=f"lifeline {worker.name}", daemon=True).start()

    def _look(self, worker: Worker, happened: float, limit: float) -> None:
        if not worker.alive or worker.leaving or worker.lost is not None:
            return
        ending = processes.dying(worker.pid)
        if ending is not None and ending.exit_code == 0:
            return  # its pidfd is reliable: some kernels report this for a process that is being killed
        if ending is not None:
            if worker.link is not None:
                worker.link.drain()  # its last message decides whether this is a loss
            self._on_dying(worker, ending, happened)
        elif time.monotonic() < limit:
            self._loop.call_later(DYING_EVERY, self._look, worker, happened, limit)
