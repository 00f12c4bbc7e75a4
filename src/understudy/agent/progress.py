"""The pages of a node's workers: sent to the orchestrator as the node's heartbeat, and checked when there is no orchestrator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from understudy.agent.config import AgentConfig
from understudy.agent.orchestrator_link import OrchestratorLink
from understudy.agent.worker import Worker
from understudy.common.names import page_path
from understudy.common.page_view import PageView, Process
from understudy.detectors.hang import HangWatch
from understudy.links import messages
from understudy.links.page import PageReader
from understudy.messages import agents

SILENT = 2.0  # seconds without a beat after which the kernel is asked about a process
STILL = 10.0  # seconds at one position after which it is asked about its main thread


class Progress:
    def __init__(
        self, config: AgentConfig, workers: Mapping[str, Worker], orchestrator: OrchestratorLink, forgotten: Callable[[str], None]
    ) -> None:
        """Create the reporter. `forgotten` is called, with the reason, when no orchestrator leads this node any more."""
        self._config = config
        self._workers = workers
        self._orchestrator = orchestrator
        self._forgotten = forgotten
        self._watch = HangWatch(config.timeouts)

    def report(self, ahead: bool = False) -> None:
        """Send the pages. `ahead`: before pending events of workers."""
        pages = {}
        for worker in self._workers.values():
            if not worker.alive and worker.page is None:
                continue
            if worker.page is None:
                try:
                    worker.page = PageReader(page_path(self._config.run_dir, worker.name))
                except OSError:
                    continue  # not made yet
            if (view := worker.look()) is not None:
                pages[worker.name] = _with_process(view, worker.pid) if worker.alive else view
        self._watch.observe(pages, time.monotonic(), time.time())
        self._orchestrator.send_pages(messages.Pages(self._config.node, time.monotonic(), pages), ahead)

    def look_whether_forgotten(self) -> None:
        """Detect that no orchestrator leads this node any more and its workers cannot continue: the job went on without them, or
        is over.
        """
        away, limits = self._orchestrator.away(), self._config.timeouts
        holders = [worker.name for worker in self._workers.values() if worker.alive and worker.rank >= 0 and worker.page is not None]
        allowed = (min(self._watch.granted(holder), max(self._watch.limit(holder), limits.hang_first)) for holder in holders)
        limit = max(allowed, default=limits.hang_first)
        still = self._watch.still(holders, time.time()) if holders else away
        if min(away, still) > limit:
            self._forgotten(agents.JOB_LOST_US(away=away, node=self._config.node, still=still))


def _with_process(view: PageView, pid: int) -> PageView:
    """Add the kernel's information about a process that is silent, or makes no progress (proc_pid_status(5))."""
    now = time.monotonic()
    if now - view.beat_at < SILENT and now - view.since < STILL:
        return view
    try:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    except OSError:
        return view  # it has ended
    found = Process(view.process)
    if status.get("TracerPid", "0").strip() != "0":
        found |= Process.TRACED
    if status.get("State", "").startswith("D"):
        found |= Process.UNINTERRUPTIBLE
    return view._replace(process=int(found))
