"""What command line and orchestrator themselves have to tell, apart from workers' output: on stderr, with our name in front."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from understudy.common.bounds import plain


def say(text: str) -> None:
    with contextlib.suppress(
        OSError
    ):  # a full disk or a closed pipe behind it must not end the job, nor who tells of it: the journal's thread
        print(f"understudy: {plain(text)}", file=sys.stderr, flush=True)


def standard_input() -> int | None:
    """Return the `stdin` argument of `subprocess.Popen` for a process that reads what this one would: a closed one is no input at all."""
    try:
        os.fstat(0)
    except OSError:
        return subprocess.DEVNULL
    return None
