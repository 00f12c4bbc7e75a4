"""Read plans of faults from TOML files. `schedule` turns a plan and a seed into injections.

seed = 7                     # of all random choices; --seed overrides it

[[fault]]
fault = "sigkill"            # or several; one of them is drawn each time, by weight: {sigkill = 3, segfault = 1}
rank = 2                     # or "random"; or node = "node1"; or spare = true
at_step = 20                 # as soon as so many steps are committed; or after = 5.0: seconds after the beginning
every = 10                   # again after so many steps (or seconds) ...
count = 5                    # ... so many times in total
jitter = 3                   # each up to so many steps (or seconds) later, at random
point = "vote"               # inside the worker, there; or several, one of which is drawn: ["vote", "apply"]
at_rank = 1                  # for faults from outside (orchestrator_kill): the rank that waits at the point while it happens
parameters = {seconds = 2.0} # of the fault
expect = "replaced"          # the expected outcome, if it is not the registry's
overlap = true               # the next fault does not wait until the job has recovered
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, StrictBool, StrictInt, ValidationError, model_validator

from understudy.chaos.base import Fault, Hits, Outcome
from understudy.chaos.points import POINTS
from understudy.chaos.registry import Registry
from understudy.messages import faults
from understudy.messages.base import code_of

RANDOM = "random"


class BadPlan(ValueError):
    """The plan cannot be executed; the text names the entry, the mistake and what is allowed."""


Number = Annotated[float, Field(ge=0)]
Weights = Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)]


class Entry(BaseModel):
    """One `[[fault]]`."""

    model_config = ConfigDict(extra="forbid")

    fault: str | Weights
    rank: StrictInt | Literal["random"] | None = None
    node: str | None = None
    spare: StrictBool = False
    at_step: Annotated[int, Field(ge=0)] | None = None
    after: Number | None = None
    every: Number | None = None
    count: PositiveInt = 1
    jitter: Number = 0
    point: str | Annotated[list[str], Field(min_length=1)] | None = None
    at_rank: Annotated[StrictInt, Field(ge=0)] | None = None
    parameters: dict[str, int | float | str] = {}
    expect: Outcome | None = None
    overlap: StrictBool = False

    @model_validator(mode="after")
    def _consistent(self) -> Entry:
        targets = [name for name, given in (("rank", self.rank), ("node", self.node), ("spare", self.spare or None)) if given is not None]
        if len(targets) > 1:
            raise ValueError(faults.SEVERAL_TARGETS(targets=" and ".join(targets)))
        if self.at_step is not None and self.after is not None:
            raise ValueError(faults.STEP_OR_TIME())
        if self.count > 1 and self.every is None:
            raise ValueError(faults.COUNT_NEEDS_EVERY(count=self.count))
        if self.every is not None and self.count == 1:
            raise ValueError(faults.EVERY_NEEDS_COUNT())
        if self.at_step is not None and any(value != int(value) for value in (self.every or 0, self.jitter)):
            raise ValueError(faults.WHOLE_STEPS())
        unknown = [point for point in self.points if point not in POINTS]
        if unknown:
            raise ValueError(faults.NO_SUCH_POINT(point=unknown[0], known=", ".join(POINTS)))
        return self

    @property
    def points(self) -> list[str]:
        return [self.point] if isinstance(self.point, str) else self.point or []

    @property
    def weights(self) -> dict[str, float]:
        return {self.fault: 1.0} if isinstance(self.fault, str) else self.fault


class Plan(BaseModel):
    """A whole plan."""

    model_config = ConfigDict(extra="forbid")

    seed: StrictInt = 0
    fault: Annotated[list[Entry], Field(min_length=1)]


def read(path: Path, registry: Registry) -> Plan:
    """Read a plan from a file. Raises `BadPlan`, or `OSError`."""
    try:
        found = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPlan(faults.NOT_TOML(path=path, problem=str(error))) from error
    try:
        return make(found, registry)
    except BadPlan as error:
        raise BadPlan(faults.IN_PLAN(path=path, problem=str(error))) from error


def make(found: dict[str, Any], registry: Registry) -> Plan:
    """Make a plan from plain values. Raises `BadPlan`."""
    try:
        plan = Plan.model_validate(found)
    except ValidationError as error:
        raise BadPlan("\n".join(map(_described, error.errors()))) from error
    for number, entry in enumerate(plan.fault, 1):
        for name in entry.weights:
            try:
                _check(entry, registry.find(name))
            except ValueError as error:
                raise BadPlan(faults.OF_FAULT(number=number, problem=str(error))) from error
    return plan


def _described(error: Any) -> str:
    """Describe pydantic's error, with the number of the entry and the names that are allowed."""
    place = list(error["loc"])
    where = ""
    if place[:1] == ["fault"] and len(place) > 1 and isinstance(place[1], int):
        where, place = f"fault {place[1] + 1}: ", place[2:]
    if error["type"] == "extra_forbidden":
        allowed = Entry.model_fields if where else Plan.model_fields
        return faults.UNKNOWN_SETTING(place=where, name=place[-1], known=", ".join(allowed))
    if error["type"] == "missing":
        return faults.MISSING_SETTING(place=where, name=".".join(map(str, place)))
    words = error["msg"].removeprefix("Value error, ")
    name = f"{place[0]}: " if place else ""
    if code_of(words):
        return f"{where}{name}{words}"
    return faults.BAD_SETTING(place=where + name, problem=words[0].lower() + words[1:])


def _check(entry: Entry, fault: Fault) -> None:
    """Check an entry against its fault. Raises `ValueError`."""
    shared = {name: value for name, value in entry.parameters.items() if len(entry.weights) == 1 or name in parameter_names(fault)}
    fault.values(shared)
    if entry.points and fault.inside is None and entry.at_rank is None and entry.rank is None:
        raise ValueError(faults.NEEDS_AT_RANK(fault=fault.name))
    if entry.at_rank is not None and fault.inside is not None:
        raise ValueError(faults.AT_RANK_INSIDE(fault=fault.name))
    if entry.at_rank is not None and not entry.points:
        raise ValueError(faults.AT_RANK_WITHOUT_POINT())
    if entry.spare and fault.outside is None:
        raise ValueError(faults.NOT_IN_A_SPARE(fault=fault.name))
    on_rank, on_node = entry.rank is not None or entry.spare, entry.node is not None
    if fault.hits is Hits.WORKER and on_node:
        raise ValueError(faults.HITS_A_WORKER(fault=fault.name, random=RANDOM))
    if fault.hits is not Hits.WORKER and on_rank:
        node = ", and give node" * (fault.hits is Hits.NODE)
        raise ValueError(faults.HITS_NO_WORKER(fault=fault.name, target=_ARTICLE[fault.hits], node=node))
    if fault.hits is Hits.ORCHESTRATOR and on_node:
        raise ValueError(faults.HITS_THE_ORCHESTRATOR(fault=fault.name))


_ARTICLE = {Hits.NODE: "a node", Hits.ORCHESTRATOR: "the orchestrator", Hits.WORKER: "a worker"}


def parameter_names(fault: Fault) -> set[str]:
    return {parameter.name for parameter in fault.parameters}
