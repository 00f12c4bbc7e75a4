"""Processes that are no member of a job open thousands of connections to its workers during a loss."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from tests.integration.processes import Mark, marked, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG, Outcome

CONNECTIONS = 8_800  # of the attack that once ended a job: "Too many open files"
DESCRIPTORS = 1024  # with which the job is started: the soft limit that Linux usually has
SPARED = 200  # descriptors of this process that are left for the test


class Stranger(threading.Thread):
    """Connects to every port on which a process of the job listens, sends nothing, and keeps its connections open."""

    def __init__(self, mark: Mark, count: int, but: set[int]) -> None:
        super().__init__()
        self.made: dict[int, list[socket.socket]] = {}  # port -> its connections
        self._mark, self._count, self._but = mark, count, but
        self._over = threading.Event()

    @property
    def number(self) -> int:
        return sum(map(len, self.made.values()))

    def run(self) -> None:
        while not self._over.is_set() and self.number < self._count:
            for port in self._ports():
                for _ in range(min(200, self._count - self.number)):
                    connection = socket.socket()
                    connection.setblocking(False)
                    connection.connect_ex(("127.0.0.1", port))
                    self.made.setdefault(port, []).append(connection)

    def end(self) -> None:
        self._over.set()
        self.join()
        for connections in self.made.values():
            for connection in connections:
                connection.close()

    def _ports(self) -> set[int]:
        found = set()
        for pid in self._mark.pids():
            with suppress(psutil.Error):
                listening = [c for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
                found |= {connection.laddr.port for connection in listening} - self._but
        return found


def test_thousands_of_connections_during_a_loss(tmp_path: Path, undisturbed_spread: Callable[[int], Outcome]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    try:
        with marked() as mark:
            service = Service(tmp_path, mark)
            service.start_nodes("abc", 1)
            job = service.held("job", spares=1, PHASES="next attempt:6")
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            stranger = Stranger(mark, min(CONNECTIONS, hard - SPARED), {int(service.url.rpartition(":")[2])})
            stranger.start()
            try:
                wait_until(lambda: stranger.number >= CONNECTIONS // 4, "the first connections", LONG)
                job.kill_rank(0)
                job.wait_until(lambda status: status["state"] == "recovering", "recovery")
                job.let("let go")
                job.wait_for("next attempt")
                wait_until(lambda: not stranger.is_alive(), "all connections", LONG)
                job.let("go on next attempt")
                ended = job.ends_like(undisturbed_spread(2))
            finally:
                stranger.end()
            assert len(stranger.made) >= 3, "several workers listen"
            (incident,) = ended.incidents
            assert (incident["rank"], incident["decision"], incident["steps_lost"]) == (0, "redo", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
