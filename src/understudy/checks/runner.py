"""All checks, one after the other, and what came of them together."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, computed_field

from understudy.checks.base import Result, Text, Verdict
from understudy.checks.isolation import isolated
from understudy.checks.options import Options
from understudy.checks.registry import chosen
from understudy.detectors.configuration import Configured

MOST_CHECKS = 100


class Report(Configured, extra="ignore"):
    """`passed` is made from the results, and not believed when it is read."""

    node: Text  # the host's name
    began: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # unix time
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    results: Annotated[tuple[Result, ...], Field(max_length=MOST_CHECKS)]

    @computed_field  # type: ignore[prop-decorator]  # as pydantic wants it
    @property
    def passed(self) -> bool:
        """Nothing has failed, and something was tried out: that nothing is known speaks for nobody."""
        verdicts = [result.verdict for result in self.results]
        return Verdict.FAILED not in verdicts and Verdict.PASSED in verdicts


def run_all(options: Options, token: str = "", begins: Callable[[str], None] = lambda name: None) -> Report:
    """`token`: what peers know each other by. `begins` is called with the name of each check. Raises `ValueError` if `options` name a check
    that there is not.
    """
    began, clock = time.time(), time.monotonic()
    results = []
    for name in chosen(options):
        begins(name)
        results.append(isolated(name, options, token))
    return Report(node=platform.node(), began=began, seconds=time.monotonic() - clock, results=tuple(results))
