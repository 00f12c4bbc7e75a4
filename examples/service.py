"""Run a service on this machine, with several nodes: an orchestrator and an agent for each, real processes that end with the `with` block.

The example of a drain and a benchmark share it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

LIMIT = 300.0  # seconds to wait for anything


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until `condition` returns something true, and return it. Ends the program after `LIMIT`."""
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"still waiting for {what}")
        time.sleep(0.05)
    return found


class LocalService:
    """A service. `folder` gets the state of the orchestrator and the agents, and the output of all processes."""

    def __init__(self, folder: Path, nodes: Sequence[str], slots: int) -> None:
        self.folder = folder
        self._nodes, self._slots = nodes, slots
        self._running: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.http = httpx.Client(trust_env=False, timeout=30.0)

    def __enter__(self) -> LocalService:
        state = self.folder / "orchestrator"
        self.start("orchestrator.txt", "orchestrator", "--listen", "127.0.0.1:0", "--state-dir", str(state))
        said = state / "orchestrator.json"
        until(said.exists, "the orchestrator")
        url = json.loads(said.read_text())["url"]
        self.environment["UNDERSTUDY_ORCHESTRATOR"] = self.http.base_url = url
        for name in self._nodes:
            words = ["agent", "--name", name, "--slots", str(self._slots), "--state-dir", str(self.folder / f"agent-{name}")]
            self.start(f"agent-{name}.txt", *words)
        until(lambda: sum(node["state"] == "here" for node in self.get("nodes")) == len(self._nodes), "the nodes")
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.get("jobs"):
            self.http.post(f"/v1/jobs/{job['job']}/stop", json={})
        until(lambda: all(node["free"] == self._slots for node in self.get("nodes")), "the end of all jobs")
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            process.wait()
        self.http.close()

    def start(self, output: str, *words: str) -> subprocess.Popen[bytes]:
        """Start an `understudy` command, which runs in parallel with this program."""
        with (self.folder / output).open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "understudy.cli", *words],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def run(self, *words: str) -> int:
        """Run an `understudy` command, which prints to this program's output; return its exit code."""
        return subprocess.run([sys.executable, "-m", "understudy.cli", *words], cwd=self.folder, env=self.environment).returncode

    def submit(self, job: str, *words: str) -> None:
        """Submit a job with `understudy run --detach`."""
        code = self.start(f"{job}.txt", "run", "--rdzv-id", job, "--detach", *words).wait()
        if code:
            raise SystemExit((self.folder / f"{job}.txt").read_text())

    def get(self, what: str) -> Any:
        return self.http.get(f"/v1/{what}").raise_for_status().json()

    def events(self, job: str) -> list[dict[str, Any]]:
        lines = self.http.get(f"/v1/jobs/{job}/events").raise_for_status().text.splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
