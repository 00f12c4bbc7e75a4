"""Define a fault: something that can be done to a running job on purpose, and its expected outcome.

A fault is a small function. `outside` is called by `understudy chaos` on the machine of its target; `inside` by the target's worker
itself, in its main thread, at a point of its step (`points`), and only in a job that was started with `--chaos`. A fault has one of
the two, or both: a plan that names a point gets the one inside.

The author of a fault, here or in another package, needs only this module of ours; `registry` finds faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from understudy.common.bounds import known_pid
from understudy.messages import faults

Value = int | float | str
Values = Mapping[str, Value]
Undo = Callable[[], None]


class Hits(StrEnum):
    """The target of a fault."""

    WORKER = "worker"  # of a rank, or a spare
    NODE = "node"  # the agent of a job's part on a node, or the node's connections
    ORCHESTRATOR = "orchestrator"


class Outcome(StrEnum):
    """The outcome for the job."""

    REPLACED = "replaced"  # the rank is lost and taken over by a spare, its state verified; a spare is replaced without an incident
    REJOINED = "rejoined"  # no rank is lost; all ranks recover in place
    UNDISTURBED = "undisturbed"  # the job goes on without an incident
    ENDS = "ends"  # the job ends, with a reason


@dataclass(frozen=True)
class Victim:
    """Processes of this machine that are the target of a fault."""

    pid: int
    more: tuple[int, ...] = ()  # its descendants, as far as they matter: a node's workers

    def __post_init__(self) -> None:
        """Refuse a number that is not a process id: a signal to 0 or to a negative number reaches whole process groups."""
        if wrong := [pid for pid in (self.pid, *self.more) if known_pid(pid) is None]:
            raise ValueError(faults.NO_PROCESS(pid=wrong[0]))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a fault. `choices`: all allowed values; empty: any value of the default's type."""

    name: str
    default: Value
    text: str
    unit: str = ""
    choices: tuple[Value, ...] = ()


SECONDS = "seconds"  # a parameter of this name is the duration of the fault, after which it is undone


@dataclass(frozen=True)
class Fault:
    name: str
    text: str  # one sentence: what happens
    hits: Hits
    expected: Outcome
    outside: Callable[[Victim, Values], Undo | None] | None = None
    inside: Callable[[Values], None] | None = None
    parameters: tuple[Parameter, ...] = ()
    alone: Outcome | None = None  # expected instead if the job has one node only
    why_not: Callable[[], str] = field(default=lambda: "")  # why it cannot be injected on this machine, or ""

    def __post_init__(self) -> None:
        if self.outside is None and self.inside is None:
            raise ValueError(faults.NOTHING_TO_DO(fault=self.name))
        if self.inside is not None and self.hits is not Hits.WORKER:
            raise ValueError(faults.INSIDE_A_WORKER(fault=self.name))

    def values(self, given: Values) -> dict[str, Value]:
        """Return all parameters, with defaults for those that are not given. Raises `ValueError`."""
        known = {parameter.name: parameter for parameter in self.parameters}
        if unknown := sorted(given.keys() - known.keys()):
            raise ValueError(faults.NO_SUCH_PARAMETER(fault=self.name, parameter=unknown[0], known=", ".join(known) or "none"))
        return {name: _checked(self.name, parameter, given.get(name, parameter.default)) for name, parameter in known.items()}


def _checked(fault: str, parameter: Parameter, value: Value) -> Value:
    kind = type(parameter.default)
    if parameter.choices and value not in parameter.choices:
        choices = ", ".join(map(str, parameter.choices))
        raise ValueError(faults.NOT_A_CHOICE(fault=fault, parameter=parameter.name, choices=choices, value=value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        words = {int: "a whole number", float: "a number", str: "a text"}[kind]
        raise ValueError(faults.WRONG_TYPE(fault=fault, parameter=parameter.name, wanted=words, value=value))
    if isinstance(value, int | float) and value < 0:
        raise ValueError(faults.NEGATIVE(fault=fault, parameter=parameter.name))
    return value
