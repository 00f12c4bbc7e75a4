"""Faults of the job's control processes: the agent of a job's part on a node, and the orchestrator."""

from __future__ import annotations

import contextlib
import resource
import signal

from understudy.chaos.base import SECONDS, Fault, Hits, Outcome, Parameter, Undo, Values, Victim
from understudy.chaos.faults.signals import sent, stopped


def journal_full(victim: Victim, values: Values) -> Undo:
    """Set RLIMIT_FSIZE of the orchestrator to 0: its journal cannot grow."""
    before = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (0, before[1]))

    def undo() -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, before)

    return undo


FAULTS = (
    Fault(
        "agent_kill",
        "The agent of the job's part on a node is killed; it is started again and takes its workers up, which train meanwhile.",
        Hits.NODE,
        Outcome.UNDISTURBED,
        outside=sent(signal.SIGKILL),
    ),
    Fault(
        "agent_pause",
        "The agent of the job's part on a node is stopped for some seconds.",
        Hits.NODE,
        Outcome.UNDISTURBED,
        outside=stopped,
        parameters=(Parameter(SECONDS, 1.0, "how long; less than a node may be silent", "s"),),
    ),
    Fault(
        "orchestrator_kill",
        "The orchestrator is killed; it is started again, and the job goes on meanwhile.",
        Hits.ORCHESTRATOR,
        Outcome.UNDISTURBED,
        outside=sent(signal.SIGKILL),
    ),
    Fault(
        "orchestrator_pause",
        "The orchestrator is stopped for some seconds.",
        Hits.ORCHESTRATOR,
        Outcome.UNDISTURBED,
        outside=stopped,
        parameters=(Parameter(SECONDS, 2.0, "how long", "s"),),
    ),
    Fault(
        "journal_full",
        "The orchestrator's files cannot grow for some seconds (RLIMIT_FSIZE), so its journal cannot be written.",
        Hits.ORCHESTRATOR,
        Outcome.UNDISTURBED,
        outside=journal_full,
        parameters=(Parameter(SECONDS, 2.0, "how long", "s"),),
    ),
)
