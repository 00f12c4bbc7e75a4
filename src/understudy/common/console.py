"""What command line and orchestrator themselves have to tell, apart from workers' output: on stderr, with our name in front."""

from __future__ import annotations

import contextlib
import sys

from understudy.common.bounds import plain


def say(text: str) -> None:
    with contextlib.suppress(
        OSError
    ):  # a full disk or a closed pipe behind it must not end the job, nor who tells of it: the journal's thread
        print(f"understudy: {plain(text)}", file=sys.stderr, flush=True)
