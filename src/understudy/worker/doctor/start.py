"""Decides whether a worker may start under the torch that is installed. Costs time only if that is none of the tested ones.

A template must start no threads before it forks, and a probe of process groups does: so the internals are tried in a separate process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from understudy.common.tested import TORCH, installed_torch, is_tested
from understudy.messages import doctor

COMMAND = (sys.executable, "-P", "-m", "understudy.worker.doctor", "--internals")
LIMIT = 300.0  # seconds


def refusal() -> str:
    """Return why no worker can work under this torch, in one line that names the first internal that is missing; "" if one can."""
    version = installed_torch()
    if is_tested(version, TORCH):
        return ""
    try:
        done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return doctor.PROBE_TOO_SLOW(**_of(version), seconds=LIMIT)
    if done.returncode != 0:
        how = (
            signal.Signals(-done.returncode).name
            if done.returncode < 0
            else (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        )
        return doctor.PROBE_ENDED(**_of(version), how=how)
    fatal = [one for one in json.loads(done.stdout) if one["fatal"]]
    if not fatal:
        return ""
    more = f" (and {len(fatal) - 1} more)" if len(fatal) > 1 else ""
    first = {"internal": fatal[0]["name"], "purpose": fatal[0]["purpose"], "reason": fatal[0]["reason"], "more": more}
    return doctor.LACKS_INTERNAL(**_of(version), **first)


def _of(version: str) -> dict[str, str]:
    """Return the fields of every refusal: the installed torch, and the tested ones."""
    return {"torch": f"torch {version}" if version else "this torch", "first": TORCH[0], "last": TORCH[1]}
