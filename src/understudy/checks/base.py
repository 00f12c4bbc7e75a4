"""The port to checks: each tries out one thing that a node must be able to do, and says what came of it.

A check is made of the options, and run once, in a process of its own (`isolation`): what it tries out may end the process. What it says
is a `Result`, which goes as JSON from there to the command line or an agent; so it has bounds, and texts in it are fit to show.
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
TOLD = 8  # failures that are told one by one

Text = Annotated[str, AfterValidator(lambda text: cut(plain(text), TEXT))]


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  # it cannot be tried out here


class Figure(Configured):
    """Something measured."""

    name: Text
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Text = ""


class Result(Configured):
    check: Name
    verdict: Verdict
    detail: Text  # for a person
    figures: Annotated[tuple[Figure, ...], Field(max_length=MOST)] = ()
    notes: Annotated[tuple[Text, ...], Field(max_length=MOST_NOTES)] = ()  # what a person should know, and no failure
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # that it took


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


class Check(ABC):
    name: Name
    limit: float = 60.0  # seconds that it may take here; whoever takes longer has failed

    def __init__(self, options: Options, token: str = "") -> None:
        """`token`: what peers know each other by. Does nothing yet."""
        self.options = options
        self.token = token

    def missing(self) -> str:
        """Why it cannot be tried out here, for a person; "" if it can."""
        return ""

    @abstractmethod
    def run(self) -> Result:
        """May change what the whole process is (affinity, handlers): it has it to itself. Raises what it likes: then it has failed."""

    def judged(self, failures: Sequence[str], otherwise: str, figures: Sequence[Figure] = (), notes: Sequence[str] = ()) -> Result:
        """Failed if there are `failures`; else passed, with the words of `otherwise`."""
        more = [node_checks.MORE_FAILURES(count=len(failures) - TOLD)] if len(failures) > TOLD else []
        return Result(
            check=self.name,
            verdict=Verdict.FAILED if failures else Verdict.PASSED,
            detail="; ".join([*failures[:TOLD], *more]) or otherwise,
            figures=tuple(figures[:MOST]),
            notes=tuple(notes[:MOST_NOTES]),
        )
