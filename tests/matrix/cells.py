"""Which fault strikes where: fault x phase x parallelism, and what may come of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from understudy.chaos.base import Fault, Hits, Outcome
from understudy.chaos.registry import registry

PARALLEL = {"ddp": "DDP, 4 ranks", "hsdp": "HSDP, 2 x 2 ranks", "tp": "tensor x data parallel, 2 x 2 ranks"}  # modes of `tests/faults/jobs`
RANKS = 4

# Of a phase: the point (`understudy.chaos.points`) at which the fault strikes.
IN_STEP = {
    "forward": "forward",
    "backward": "backward",
    "vote": "vote agreement",
    "apply": "apply",
    "between steps": "between",
    "evaluation": "evaluation",
}
RECOVERY = {"attach": "attach", "transfer": "transfer", "verify": "verify"}  # brought about by the loss of another worker before
MIGRATION = "planned migration"  # the rank that moves is about to send its state
PHASES = (*IN_STEP, *RECOVERY, MIGRATION)

# Ranks 0 and 3 hold nothing that only they hold, together, in every mode.
FIRST, SURVIVOR = 0, 3

PATIENT = {"socket_reset": 20.0}  # seconds of hang limit: connections that broke are waited for until a loss explains them (`core.loss`)
HANG_LIMIT = 5.0
ALONE_LIMIT = 20.0  # for a hang outside of steps, and in the first steps of a worker
SETUP_LIMIT = 30.0  # for a hang in a recovery, which the limits of the recovery itself end (`core.loss.expired`)
SHORT = {"pause": 1.0, "agent_pause": 1.0, "orchestrator_pause": 1.0, "journal_full": 1.0, "packet_drop": 1.0, "slow_link": 1.0}
SHORT |= {"disk_full": 1.0, "clock_jump": 1.0}  # seconds that they last


@dataclass(frozen=True)
class Cell:
    mode: str
    phase: str
    fault: str
    entries: tuple[dict[str, Any], ...] = ()  # of a plan of chaos; the first is the fault
    migrates: int | None = None  # this rank, while the first entry waits
    allowed: frozenset[Outcome] = field(default=frozenset())
    why_not: str = ""  # it does not apply, and why

    @property
    def name(self) -> str:
        return f"{self.mode}, {self.phase}, {self.fault}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Of `understudy run`."""
        limit = ("--hang-limit", f"{PATIENT.get(self.fault, HANG_LIMIT):g}")
        if self.fault != "hang":
            return limit
        alone = (*limit, "--alone-limit", f"{ALONE_LIMIT:g}")
        return alone if self.phase in IN_STEP else (*alone, "--setup-limit", f"{SETUP_LIMIT:g}")


def cells(mode: str) -> list[Cell]:
    """All of a mode, by phase."""
    return [_cell(mode, phase, fault, number) for phase in PHASES for number, fault in enumerate(registry().all())]


def cell(mode: str, phase: str, fault: str, number: int) -> Cell:
    """Return one cell. `number` decides which rank is hit, where any may be."""
    return _cell(mode, phase, registry().find(fault), number)


def _cell(mode: str, phase: str, fault: Fault, number: int) -> Cell:
    if why := _why_not(phase, fault):
        return Cell(mode, phase, fault.name, why_not=why)
    point = IN_STEP.get(phase) or RECOVERY.get(phase) or "donate"
    rank = number % RANKS
    if phase in RECOVERY:
        rank = SURVIVOR if phase == "attach" else FIRST  # else the worker that takes over rank 0
    entry: dict[str, Any] = {"fault": fault.name, "point": point, "after": 0.0}
    if fault.hits is Hits.WORKER:
        entry["rank"] = rank
    else:
        entry["at_rank"] = rank
    if fault.name in SHORT:
        entry["parameters"] = {"seconds": SHORT[fault.name]}
    allowed = {fault.alone or fault.expected}
    if fault.name == "no_memory":
        allowed |= {Outcome.REPLACED}  # depends on what is refused it first: Python, which raises, or a library, which aborts
    entries = [entry]
    if phase not in IN_STEP and fault.expected is Outcome.REJOINED:
        entry["expect"] = "undisturbed"  # everybody is on the way to a new generation already, and has let go of the old one's connections
        allowed = {Outcome.UNDISTURBED}
    if phase in RECOVERY:
        entry["overlap"] = True
        entries.append({"fault": "sigkill", "rank": FIRST, "after": 0.001})
    return Cell(mode, phase, fault.name, tuple(entries), rank if phase == MIGRATION else None, frozenset(allowed))


def _why_not(phase: str, fault: Fault) -> str:
    if why := fault.why_not():
        return why
    if fault.name == "node_cut":
        return "the job of the matrix has one node; hosts are cut off in tests/integration/control/test_hosts.py"
    if fault.name == "exception" and phase not in ("forward", "backward", "apply", "between steps", "evaluation"):
        return "no line of the script runs in this phase"
    return ""
