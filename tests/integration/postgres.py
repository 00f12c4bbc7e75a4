"""A PostgreSQL of the test's own, in its folder, reached through a socket there."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes import wait_until
from tests.integration.training import LONG

# Debian keeps the programs out of the PATH.
PROGRAMS = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), "")
needs_postgres = pytest.mark.skipif(not PROGRAMS, reason="PostgreSQL is not installed (Debian: postgresql)")


class Postgres:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"postgresql://tester:a%20password@/postgres?host={folder}"
        # The server refuses to run as root: it gets a user namespace in which the caller has another number.
        self._as_user = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
        bin_ = Path(PROGRAMS).parent
        command = [bin_ / "initdb", "-D", folder / "data", "-U", "tester", "--auth=trust", "--no-sync"]
        subprocess.run([*self._as_user, *map(str, command)], check=True, capture_output=True)
        self._command = [*self._as_user, str(bin_ / "postgres"), "-D", str(folder / "data"), "-k", str(folder), "-h", "", "-F"]
        self.start()

    def start(self) -> None:
        with (self.folder / "postgres.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self._wait()

    def _wait(self) -> None:
        log = self.folder / "postgres.log"
        before = log.read_text().count("ready to accept connections")
        wait_until(
            lambda: log.read_text().count("ready to accept connections") > before or (self.folder / ".s.PGSQL.5432").exists(),
            "PostgreSQL",
            LONG,
        )

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
