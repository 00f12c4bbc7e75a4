"""Read a policy: a TOML file with rules for the consequences of evidence, and limits to them. `default.toml` is the built-in one.

    [limits]
    nodes_per_hour = 6                # that ranks start to leave in any 60 minutes
    domains_at_a_time = 1             # failure domains that ranks are leaving at the same time
    spares_left = 0                   # warm spares on trusted nodes that must be left after the first rank of a node has taken one
    quiet_hours = ["22:00-06:00"]     # no rank starts to leave a node then (UTC); a loss is recovered at any time

    [trust]                           # how a node is trusted again whose taints have ended
    check = true                      # it passes understudy check-node first, if no rank of the job is there
    return_home = false               # the ranks that were started there go back ...
    after = "10m"                     # ... when it has been trusted for so long

    [scheduler]                       # of a job that has its nodes from Slurm
    release = true                    # a node that ranks have left for good, or that is lost, is given back at once; not with return_home
    drain = false                     # ... and drained there, with the reason; requires an administrator's rights

    [[rule]]
    name = "a GPU that fell off the bus"
    detector = "nvml"                 # these three are patterns as of the shell (*, ?, [...]); left out: any
    kind = "xid-79"
    node = "rack3-*"
    subject = ["device", "node"]      # left out: any
    severity = ["suspect"]            # left out: any
    action = "leave"                  # note, taint, leave or lost
    after = 3                         # seen so often ...
    within = "10m"                    # ... in this time; before that it is a note
    hold = "1h"                       # how long a taint lasts after the last evidence; left out: as in the evidence

The first rule that matches decides. Evidence that no rule matches is a note.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, StrictBool, StrictInt, ValidationError, model_validator

from understudy.core.model import JobSpec
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.messages import policies
from understudy.messages.base import code_of

LONGEST = 366 * 86400.0  # seconds
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")

MOST_CHARACTERS = 1 << 16  # characters of a policy
MOST_RULES = 500
MOST_REPORTED = 20  # mistakes in one policy
MOST_DOTS = 64  # in a line, outside of quotes
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


class BadPolicy(ValueError):
    """A policy cannot be used. The text names the file and the rule, the mistake, and what is allowed."""


class Action(StrEnum):
    NOTE = "note"  # shown to people, once
    TAINT = "taint"  # the node gets no more ranks and spares
    LEAVE = "leave"  # ... and its ranks move to other nodes; of a worker: its rank moves to a spare
    LOST = "lost"  # of a worker, or of a device: the worker there is ended, and its rank goes to a spare


def seconds(value: Any) -> Any:
    """Return the seconds of a number, or of a text like 90s, 10m, 1.5h."""
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise ValueError(policies.NO_DURATION(value=value))
        return float(found[1]) * _UNITS[found[2]]
    if isinstance(value, bool):
        raise ValueError(policies.NO_DURATION(value=value))
    return value


def minutes_of_day(value: Any) -> Any:
    """Parse HH:MM-HH:MM: return the first minute of the day, and the one after the last."""
    if not isinstance(value, str):
        return value
    found = _HOURS.fullmatch(value.strip())
    if found is None:
        raise ValueError(policies.NO_TIME_OF_DAY(value=value))
    first, last = int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])
    if first == last:
        raise ValueError(policies.EMPTY_HOURS(value=value))
    return first, last


Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0, le=LONGEST)]
Hours = Annotated[tuple[int, int], BeforeValidator(minutes_of_day)]
Pattern = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[StrictInt, Field(ge=0, le=10**6)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Part):
    nodes_per_hour: Count = 6
    domains_at_a_time: PositiveInt = 1
    spares_left: Count = 0
    quiet_hours: tuple[Hours, ...] = ()


class Trust(_Part):
    check: StrictBool = True
    return_home: StrictBool = False
    after: Duration = 600.0


class Back(_Part):
    release: StrictBool = True
    drain: StrictBool = False


class Rule(_Part):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    action: Action
    detector: Pattern = "*"
    kind: Pattern = "*"
    node: Pattern = "*"
    subject: frozenset[Subject] = frozenset(Subject)
    severity: frozenset[Severity] = frozenset(Severity)
    after: Annotated[StrictInt, Field(ge=1, le=1000)] = 1
    within: Duration = 600.0
    hold: Duration | None = None

    @model_validator(mode="after")
    def _possible(self) -> Rule:
        if self.action is Action.LOST and not self.subject <= {Subject.WORKER, Subject.DEVICE}:
            raise ValueError(policies.LOST_IS_FOR_WORKERS())
        return self

    def fits(self, evidence: Evidence, node: str) -> bool:
        """Return whether the rule matches. `node`: the subject's node."""
        return (
            evidence.subject in self.subject
            and evidence.severity in self.severity
            and fnmatchcase(evidence.detector, self.detector)
            and fnmatchcase(evidence.kind, self.kind)
            and fnmatchcase(node, self.node)
        )


class Policy(_Part):
    limits: Limits = Limits()
    trust: Trust = Trust()
    scheduler: Back = Back()
    rule: Annotated[tuple[Rule, ...], Field(max_length=MOST_RULES)] = ()

    @model_validator(mode="after")
    def _distinct(self) -> Policy:
        names = [rule.name for rule in self.rule]
        if twice := sorted(name for name, count in Counter(names).items() if count > 1):
            raise ValueError(policies.TWO_RULES(name=twice[0]))
        return self


def applied(spec: JobSpec, policy: Policy) -> JobSpec:
    """Return a job's spec with what its state machine has to know of its policy."""
    return replace(spec, admission=policy.trust.check, home_after=policy.trust.after if policy.trust.return_home else -1.0)


def read(path: Path) -> Policy:
    """Read the policy in a file. Raises `BadPolicy`."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadPolicy(policies.UNREADABLE(path=path, reason=str(error))) from error
    return parse(text, str(path))


def default() -> Policy:
    return parse(default_text(), "default.toml")


def default_text() -> str:
    return files(__package__).joinpath("default.toml").read_text()


def parse(text: str, name: str) -> Policy:
    """Parse a policy. `name`: of the file. Raises `BadPolicy`."""
    _bounded(text, name)
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        raise BadPolicy(policies.NOT_TOML(path=name, problem=str(error))) from error
    try:
        return Policy.model_validate(found)
    except ValidationError as error:
        raise BadPolicy("\n".join(_described(name, found, one) for one in error.errors(include_url=False)[:MOST_REPORTED])) from error


def _bounded(text: str, name: str) -> None:
    """Refuse what takes long to parse: the time for a key grows with the square of its parts."""
    if len(text) > MOST_CHARACTERS:
        raise BadPolicy(policies.TOO_LONG(path=name, characters=len(text), most=MOST_CHARACTERS))
    for number, line in enumerate(text.splitlines(), 1):
        if _QUOTED.sub("", line).count(".") > MOST_DOTS:
            raise BadPolicy(policies.TOO_DEEP(path=name, line=number))


def _described(name: str, found: dict[str, Any], error: Any) -> str:
    place = list(error["loc"])
    where = ".".join(str(part) for part in place if not isinstance(part, int))
    if len(place) > 1 and place[0] == "rule" and isinstance(place[1], int):
        rule = found["rule"][place[1]]
        title = rule.get("name") if isinstance(rule, dict) else None
        where = f"rule {place[1] + 1}" + (f" ({title})" if isinstance(title, str) else "") + "".join(f", {part}" for part in place[2:3])
    within, problem = f"{where}: " if where else "", str(error["msg"]).removeprefix("Value error, ")
    return f"{name}: {within}{problem}" if code_of(problem) else policies.BAD_VALUE(path=name, place=within, problem=problem)
