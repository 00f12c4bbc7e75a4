"""`understudy doctor`: report whether a job can run here, and what is limited.

Whatever needs torch is examined in its own process (`worker.doctor`), because the command line never imports it; so a torch that
cannot be imported, or that ends the process, is a finding like any other.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from understudy.cli.job_commands import AsJson
from understudy.cli.show import doctor_view
from understudy.common import tested
from understudy.common.console import say
from understudy.common.finding import LIMITED, MISSING, OK, Finding, can_run
from understudy.messages import tools

COMMAND = (sys.executable, "-P", "-m", "understudy.worker.doctor", "--json")
LIMIT = 300.0  # seconds
NEEDED = f"torch>={tested.TORCH[0]},<{tested.minor(tested.TORCH[1])[0]}.{tested.minor(tested.TORCH[1])[1] + 1}"


def doctor(as_json: AsJson = False) -> None:
    """Check whether a job can run on this machine, with this Python and this torch, and show what to do if not.

    It tests every part of torch that Understudy relies on and that torch may change, and checks GPUs, limits and the kernel.
    It changes nothing, starts no job, and takes a few seconds.

    ok: as expected. limited: jobs run, but a feature is missing or works less well. missing: no job can run.

    Add its output to a bug report, with --json for all details. It contains no secrets: only names of environment variables.

    [bold]understudy doctor[/bold]

    [bold]understudy doctor --json > doctor.json[/bold]
      For a bug report, or to compare two machines.
    """
    found = examined()
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        Console().print(doctor_view(found))
        say(tools.CAN_RUN() if found["can run"] else tools.CANNOT_RUN())
    raise typer.Exit(0 if found["can run"] else 1)


def examined() -> dict[str, Any]:
    """Return all findings of both sides, with the details from which the worker's side made its own."""
    findings = [of_python(platform.python_version()), *of_system(), of_run_directories(Path.cwd())]
    about: dict[str, Any] = {}
    if find_spec("torch") is None:  # searched for, not imported
        findings.append(
            Finding("torch", MISSING, tools.TORCH_MISSING(python=sys.executable), f"{sys.executable} -m pip install '{NEEDED}'")
        )
    else:
        found = of_worker()
        if isinstance(found, Finding):
            findings.append(found)
        else:
            findings += [Finding(**one) for one in found.pop("findings")]
            about = found
    python = {"version": platform.python_version(), "executable": sys.executable, "platform": platform.platform()}
    return {"can run": can_run(findings), "findings": [asdict(one) for one in findings], "command line": python, **about}


def of_python(version: str) -> Finding:
    first, last = tested.PYTHON
    if tested.is_tested(version, tested.PYTHON):
        return Finding("Python", OK, version)
    return Finding("Python", LIMITED, tools.PYTHON_UNTESTED(version=version, first=first, last=last), f"use Python {first} to {last}")


def of_system() -> Iterator[Finding]:
    """Examine what the agent and the orchestrator need."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        yield Finding("processes of a job", MISSING, tools.NO_PIDFDS(reason=str(error)), "use Linux 5.3 or newer")
    else:
        yield Finding("processes of a job", OK, "can be watched")
    try:
        with closing(socket.socket()) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
    except OSError as error:
        yield Finding("loopback", MISSING, tools.NO_LOOPBACK(reason=error.strerror), "set the interface lo up")
    else:
        yield Finding("loopback", OK, "127.0.0.1 can be listened on")


def of_run_directories(folder: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding(
            "run directories", LIMITED, tools.NO_RUN_DIRECTORIES(folder=folder, reason=error.strerror), "give another place with --run-dir"
        )
    return Finding("run directories", OK, f"can be made in {folder}")


def of_worker(command: tuple[str, ...] = COMMAND, limit: float = LIMIT) -> dict[str, Any] | Finding:
    """Return the report of the worker's side, or a finding with the reason why there is none."""
    to_do = f"{sys.executable} -m pip install '{NEEDED}', then {sys.executable} -c 'import torch'"
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return Finding("torch", MISSING, tools.TORCH_TIMED_OUT(seconds=limit), to_do)
    if done.returncode < 0:
        return Finding("torch", MISSING, tools.TORCH_ENDED_PROCESS(signal=signal.Signals(-done.returncode).name), to_do)
    if done.returncode > 0:
        why = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        return Finding("torch", MISSING, tools.TORCH_UNUSABLE(reason=why), to_do)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
