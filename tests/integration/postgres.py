"""A PostgreSQL of the test's own, in its folder, reached through a socket there."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.integration.processes import send, wait_until
from tests.integration.training import LONG

# Debian keeps the programs out of the PATH.
PROGRAMS = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), "")
# The server refuses to run as root: it gets a user namespace in which the caller has another number.
AS_USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []


def why_not() -> str:
    """Why there can be no PostgreSQL here, or ""."""
    if not PROGRAMS:
        return "PostgreSQL is not installed (Debian: postgresql)"
    if AS_USER and (shutil.which("unshare") is None or subprocess.run([*AS_USER, "true"], capture_output=True).returncode != 0):
        return "PostgreSQL does not run as root, and there are no user namespaces here"
    return ""


needs_postgres = pytest.mark.skipif(bool(why_not()), reason=why_not())


class Postgres:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"postgresql://tester:a%20password@/postgres?host={folder}"
        bin_ = Path(PROGRAMS).parent
        command = [bin_ / "initdb", "-D", folder / "data", "-U", "tester", "--auth=trust", "--no-sync"]
        subprocess.run([*AS_USER, *map(str, command)], check=True, capture_output=True)
        self._command = [*AS_USER, str(bin_ / "postgres"), "-D", str(folder / "data"), "-k", str(folder), "-h", "", "-F"]
        self.start()

    def start(self) -> None:
        with (self.folder / "postgres.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._takes_connections, "PostgreSQL takes connections", LONG)

    def _takes_connections(self) -> bool:
        try:
            psycopg.connect(host=str(self.folder), user="tester", dbname="postgres").close()
        except psycopg.OperationalError:  # no socket yet, or starting up
            return False
        return True

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It answers nothing, and connections stay: as a host that hangs. The processes of connections are children of the server."""
        self.process.send_signal(signal.SIGSTOP)  # first: it makes no more of them
        stopped = [int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]
        try:
            for pid in stopped:
                send(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in (*stopped, self.process.pid):
                send(pid, signal.SIGCONT)

    def stop(self) -> None:
        """At once: connections break."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LONG)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    folder.mkdir()
    running = Postgres(folder)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()
