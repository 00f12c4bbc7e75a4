"""Sandboxes and containers on a node, in place of containerd: their processes and exit codes, in files that outlive the kubelet.

A pod's sandbox is a process that sleeps: it keeps the pod's network, host name and IPC. A container is a process namespace with its own
mounts (`container.py`) in these; a shell waits for its end and writes the exit code, so that no other process has to be there.

    POD/sandbox.json                      the sandbox's process and address, while there is one
    POD/containers/NAME/N/specification   the specification of attempt N
                          pid             the container's first process, in the node's numbering
                          log             its output
                          exit            the exit code, once it has ended

Simpler than in reality: there are no images and no limits, and securityContext is ignored. Everything runs as root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.processes import send, send_to_group
from tests.kubernetes.network import PREFIX, ip, plug

# Waits for a container. Its own end comes after the exit code is there. The container reports on 3 that it becomes its command.
WAITS = """
echo $$ >"$0/waits"
"$@" 3>&1 >"$0/log" 2>&1 </dev/null
echo $? >"$0/exit.new"
mv "$0/exit.new" "$0/exit"
"""
SLEEPS = 'hostname "$0" && echo $$ && exec sleep infinity >/dev/null'


def _started(words: list[str]) -> int:
    """Start a process in a new session. It outlives the kubelet; returns once it has written a line, or has ended."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
    return process.pid


@dataclass(frozen=True)
class Attempt:
    """A container, run for the Nth time."""

    folder: Path

    @property
    def number(self) -> int:
        return int(self.folder.name)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((self.folder / "exit").read_text())
        if not self._waits():  # it was killed itself
            with contextlib.suppress(FileNotFoundError, ValueError):
                return int((self.folder / "exit").read_text())
            return 128 + signal.SIGKILL
        return None

    def _waits(self) -> bool:
        with contextlib.suppress(OSError):
            return "Z" not in Path(f"/proc/{self.waiting}/stat").read_text().rpartition(")")[2].split()[0]
        return False

    @property
    def waiting(self) -> int:
        return int((self.folder / "waits").read_text())

    @property
    def pid(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return int((self.folder / "pid").read_text())
        return None

    @property
    def started(self) -> float:
        return (self.folder / "specification").stat().st_mtime

    @property
    def ended(self) -> float:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "exit").stat().st_mtime
        return self.started

    def signal(self, number: signal.Signals) -> None:
        """To its first process. One that has no handler for it does not even notice, as is usual for a first process."""
        if self.exit_code is None and (pid := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                send(pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.exit_code is None and self.pid is None:  # it is not even created: the process that waits for it ends with it
            with contextlib.suppress(ProcessLookupError):
                send_to_group(self.waiting, signal.SIGKILL)

    def command(self, *words: str) -> list[str]:
        """For `subprocess`, on the node: `words`, run in the container with its environment."""
        environment = json.loads((self.folder / "specification").read_text())["environment"]
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd"]
        return [*inside, "env", "-i", *(f"{name}={value}" for name, value in environment.items()), *words]


class Sandbox:
    """All processes of a pod on this node. `layers` is in memory; the content of `folder` stays."""

    def __init__(self, folder: Path, layers: Path) -> None:
        self.folder, self.layers = folder, layers

    @property
    def _state(self) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads((self.folder / "sandbox.json").read_text())
            return found
        return {}

    @property
    def address(self) -> str | None:
        return self._state.get("address")

    def create(self, hostname: str, address: str) -> None:
        """Where there is none."""
        for folder in (self.folder / "containers", self.layers / "shm"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.layers / "shm").chmod(0o1777)
        pid = _started(["unshare", "--net", "--uts", "--ipc", "sh", "-c", SLEEPS, hostname])
        try:
            plug(pid, "eth0", os.getpid(), f"p{address.split('.')[3]}")
            ip("addr", "add", f"{address}/{PREFIX}", "dev", "eth0", inside=pid)
            for device in ("lo", "eth0"):
                ip("link", "set", device, "up", inside=pid)
        except OSError:
            send(pid, signal.SIGKILL)
            raise
        self._write({"pid": pid, "address": address})

    def _write(self, state: dict[str, Any]) -> None:
        new = self.folder / "sandbox.new"
        new.write_text(json.dumps(state))
        new.replace(self.folder / "sandbox.json")

    def attempts(self, container: str) -> list[Attempt]:
        folder = self.folder / "containers" / container
        # One that has not begun does not exist: the process that created it has ended meanwhile.
        found = [Attempt(path) for path in folder.glob("*") if (path / "waits").exists() or (path / "exit").exists()]
        return sorted(found, key=lambda attempt: attempt.number)

    def all_attempts(self) -> list[Attempt]:
        return [attempt for path in (self.folder / "containers").glob("*") for attempt in self.attempts(path.name)]

    def start(self, container: str, specification: dict[str, Any]) -> Attempt:
        """Its words, environment, folder, files and mounts; see `container.py`."""
        number = len(self.attempts(container))
        folder = self.folder / "containers" / container / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        layer = self.layers / f"{container}-{number}"
        whole = {**specification, "layer": str(layer), "shm": str(self.layers / "shm")}
        (folder / "specification").write_text(json.dumps(whole))
        words = ["sh", "-c", WAITS, str(folder)]
        words += ["nsenter", "--target", str(self._state["pid"]), "--net", "--uts", "--ipc"]
        words += ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        words += [sys.executable, "-I", "-S", str(Path(__file__).with_name("container.py")), str(folder / "specification")]
        _started(words)
        return Attempt(folder)

    def remove(self) -> None:
        """Its containers have ended. Logs stay."""
        with contextlib.suppress(KeyError, ProcessLookupError):
            send(self._state["pid"], signal.SIGKILL)
        (self.folder / "sandbox.json").unlink(missing_ok=True)
        shutil.rmtree(self.layers, ignore_errors=True)
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)
