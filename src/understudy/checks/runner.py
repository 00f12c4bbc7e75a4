"""Run all checks, one after the other, and return their results together."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

from understudy.checks.base import Report
from understudy.checks.isolation import isolated
from understudy.checks.options import Options


def run_all(options: Options, token: str = "", begins: Callable[[str], None] = lambda name: None) -> Report:
    """Run the chosen checks. `token`: the peers' shared secret. `begins` is called with the name of each check."""
    began, clock = time.time(), time.monotonic()
    results = []
    for name in options.chosen():
        begins(name)
        results.append(isolated(name, options, token))
    return Report(node=platform.node(), began=began, seconds=time.monotonic() - clock, results=tuple(results))
