"""What the command line itself has to tell, apart from workers' output: on stderr, with our name in front."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    print(f"understudy: {text}", file=sys.stderr, flush=True)
