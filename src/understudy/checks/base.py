"""The port to checks: each tests one thing that a node must be able to do, and returns a result.

A check is created with the options, and run once, in its own process (`isolation`): a failure may end the process. Its
`Result` is passed as JSON to the command line or an agent; so it has bounds, and its texts are safe to show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, computed_field

from understudy.checks.options import Name, Options
from understudy.common.bounds import cut, plain
from understudy.detectors.configuration import Configured
from understudy.messages import node_checks

MOST = 2000  # figures of one check: a node may have many CPUs
MOST_NOTES = 100
MOST_CHECKS = 100
TEXT = 4000  # bytes of a text, as JSON
LISTED = 8  # failures that are listed one by one

Text = Annotated[str, AfterValidator(lambda text: cut(plain(text), TEXT))]


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  # it cannot be tested here


class Figure(Configured):
    """A measured value."""

    name: Text
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Text = ""


class Result(Configured):
    check: Name
    verdict: Verdict
    detail: Text  # for a person
    figures: Annotated[tuple[Figure, ...], Field(max_length=MOST)] = ()
    notes: Annotated[tuple[Text, ...], Field(max_length=MOST_NOTES)] = ()  # information for a person that is no failure
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # duration of the check


class Report(Configured, extra="ignore"):
    """All results of a node. `passed` is computed from the results, and ignored when it is read."""

    node: Text  # the host's name
    began: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # unix time
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    results: Annotated[tuple[Result, ...], Field(max_length=MOST_CHECKS)]

    @computed_field  # type: ignore[prop-decorator]  # the order that pydantic needs
    @property
    def passed(self) -> bool:
        """Whether nothing has failed, and something was tested: a node about which nothing is known has not passed."""
        verdicts = [result.verdict for result in self.results]
        return Verdict.FAILED not in verdicts and Verdict.PASSED in verdicts


class Check(ABC):
    name: Name
    limit: float = 60.0  # seconds that it may take here; a check that takes longer has failed

    def __init__(self, options: Options, token: str = "") -> None:
        """Prepare the check; nothing is tested yet. `token`: the peers' shared secret."""
        self.options = options
        self.token = token

    def missing(self) -> str:
        """Return why this cannot be tested here, for a person; "" if it can."""
        return ""

    @abstractmethod
    def run(self) -> Result:
        """Run the check. It may change the whole process (affinity, handlers), which is its own. May raise anything: then it has failed."""

    def judged(self, failures: Sequence[str], otherwise: str, figures: Sequence[Figure] = (), notes: Sequence[str] = ()) -> Result:
        """Return a failed result if there are `failures`; else a passed one, with the text `otherwise`."""
        more = [node_checks.MORE_FAILURES(count=len(failures) - LISTED)] if len(failures) > LISTED else []
        return Result(
            check=self.name,
            verdict=Verdict.FAILED if failures else Verdict.PASSED,
            detail="; ".join([*failures[:LISTED], *more]) or otherwise,
            figures=tuple(figures[:MOST]),
            notes=tuple(notes[:MOST_NOTES]),
        )
