"""The folder of one run: its files, and how it is found again.

job.json            the job's settings
agent.json          the settings of this node's agent
token               the job's secret, readable by its owner only
orchestrator.json   the orchestrator's address, while it runs
journal.db          everything that happened; `status` and `report` read it when no orchestrator answers
workers/w3.log      the output of worker w3; w3.page shows its progress
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.common.names import AGENT, JOB, JOURNAL, ORCHESTRATOR, SECRET, WORKERS
from understudy.messages import asking

RUNS = Path("understudy-runs")


def _started(job: Path) -> float:
    """Return when a run was started, in seconds since the epoch; 0 if the file is not one of ours."""
    try:
        found = json.loads(job.read_text())
        return float(found["started"]) if {"spec", "program"} <= found.keys() else 0.0
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return 0.0


def _fresh(path: Path) -> Path:
    """Create a new folder and return it: `path`, or `path` with a number appended if that exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        one = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with contextlib.suppress(FileExistsError):
            one.mkdir()
            return one
    raise AssertionError("numbers do not end")


class NoRun(ValueError):
    """There is no such run; the text gives the remedy."""


@dataclass(frozen=True)
class RunDirectory:
    path: Path

    @staticmethod
    def create(path: Path | None, name: str) -> RunDirectory:
        """Create a run directory: `path`, or `name` below `RUNS`, with a number appended if that exists. Pods that share a folder may start
        in the same second, each as process 1. Raises `NoRun` if `path` has a run already, or the folder cannot be created.
        """
        if path is not None and (path / JOB).exists():
            raise NoRun(asking.RUN_DIRECTORY_TAKEN(path=path.absolute()))
        try:
            path = _fresh(RUNS / name) if path is None else path
            (path / WORKERS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NoRun(asking.NO_RUN_DIRECTORY(path=(path or RUNS).absolute(), reason=error.strerror)) from error
        return RunDirectory(path.absolute())

    @staticmethod
    def find(path: Path | None) -> RunDirectory:
        """Return an existing run directory: `path`, or the latest at most two folders below the current one. Raises `NoRun`."""
        if path is not None:
            if not (path / JOB).exists():
                raise NoRun(asking.NOT_A_RUN(path=path, file=JOB))
            return RunDirectory(path.absolute())
        runs = [(started, job.parent) for depth in ("*", "*/*") for job in Path().glob(f"{depth}/{JOB}") if (started := _started(job))]
        if not runs:
            raise NoRun(asking.NO_RUN(folder=Path.cwd()))
        return RunDirectory(max(runs)[1].absolute())

    @property
    def job_file(self) -> Path:
        return self.path / JOB

    @property
    def agent_file(self) -> Path:
        return self.path / AGENT

    @property
    def journal_file(self) -> Path:
        return self.path / JOURNAL

    def job(self) -> dict[str, Any]:
        job: dict[str, Any] = json.loads(self.job_file.read_text())
        return job

    def write_job(self, job: dict[str, Any]) -> None:
        """Write job.json atomically: another process may read it meanwhile."""
        new = self.job_file.with_suffix(".new")
        new.write_text(json.dumps(job, indent=1) + "\n")
        new.replace(self.job_file)

    def write_token(self, token: str | None) -> str:
        """Keep the given token, or a new one, readable by its owner only."""
        token = token or secrets.token_urlsafe(32)
        path = self.path / SECRET
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(token + "\n")
        return token

    def token(self) -> str:
        return (self.path / SECRET).read_text().strip()

    def served(self) -> bool:
        """Return whether an orchestrator of this node has ever served."""
        return (self.path / ORCHESTRATOR).exists()

    def orchestrator(self) -> str | None:
        """Return the orchestrator's URL, or several separated by commas, as far as known here; None if there is none."""
        try:
            url: str = json.loads((self.path / ORCHESTRATOR).read_text())["url"]
        except FileNotFoundError:
            remote = self.job().get("orchestrator")
            return str(remote) if remote else None
        return url
