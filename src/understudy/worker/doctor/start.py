"""Whether a worker may start under the torch that is installed. Paid for only where that is none of the tested ones.

A template must start no threads before it forks, and a probe of process groups does: so the internals are tried in a process of their own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from understudy.common.tested import TORCH, installed_torch, is_tested

COMMAND = (sys.executable, "-P", "-m", "understudy.worker.doctor", "--internals")
LIMIT = 300.0  # seconds


def refusal() -> str:
    """Why no worker can work under this torch, in one line that names the first internal that is missing; "" if one can."""
    version = installed_torch()
    if is_tested(version, TORCH):
        return ""
    try:
        done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return _line(version, f"trying its internals out took more than {LIMIT:g} s")
    if done.returncode != 0:
        how = (
            signal.Signals(-done.returncode).name
            if done.returncode < 0
            else (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
        )
        return _line(version, f"trying its internals out ended with {how}")
    fatal = [one for one in json.loads(done.stdout) if one["fatal"]]
    if not fatal:
        return ""
    more = f" (and {len(fatal) - 1} more)" if len(fatal) > 1 else ""
    return _line(version, f"it has no {fatal[0]['name']} as it is needed ({fatal[0]['purpose']}): {fatal[0]['reason']}{more}")


def _line(version: str, what: str) -> str:
    """`what` ends a job, so what to do now stands beside it."""
    shown = f"torch {version}" if version else "this torch"
    return f"{shown} cannot be used: {what}. Install torch {TORCH[0]} to {TORCH[1]}; `understudy doctor` shows all"
