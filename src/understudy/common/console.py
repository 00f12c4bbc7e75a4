"""Print messages of the command line and the orchestrator, apart from workers' output: on stderr, with our name first."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from understudy.common.bounds import plain


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk or a closed pipe must end neither the job nor the thread that prints: the journal's
        print(f"understudy: {plain(text)}", file=sys.stderr, flush=True)


def standard_input() -> int | None:
    """Return the `stdin` argument of `subprocess.Popen` for a process that reads what this one would: a closed one is no input at all."""
    try:
        os.fstat(0)
    except OSError:
        return subprocess.DEVNULL
    return None
