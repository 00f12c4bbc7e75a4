"""The findings of `understudy doctor`: one line each for a person, made by the command line or by the worker's side of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK, LIMITED, MISSING = "ok", "limited", "missing"


@dataclass(frozen=True)
class Finding:
    what: str
    status: str  # OK; LIMITED: jobs run, but not all kinds, or not as well; MISSING: no job can run
    detail: str
    to_do: str = ""  # what a person can do about it


def can_run(findings: Iterable[Finding]) -> bool:
    """Return whether a job can run."""
    return all(finding.status != MISSING for finding in findings)
