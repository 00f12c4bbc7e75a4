"""Show what a policy would have done about the evidence in a journal. Nothing is changed.

Taints that a detector's evidence has caused are left out, and the taints of this policy are used instead. Taints of operators, and of
replicas that differed, stay. Known limits: the ranks are where they were at that time, even if this policy would have moved them; and
evidence is in a journal only from the version on that writes it there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from understudy.common.names import JOURNAL
from understudy.core.events import Event, MigrationAsked, NodeTainted, Observed, WorkerLost
from understudy.core.machine import Machine
from understudy.core.state import OURS, JobState, Taint
from understudy.messages import orchestrators, service_jobs
from understudy.orchestrator import journal
from understudy.orchestrator.detection import Responses, observed_as
from understudy.orchestrator.rows import Recorded
from understudy.orchestrator.views import NoJournal
from understudy.policy.rules import Policy


@dataclass(frozen=True)
class Step:
    """A consequence of the policy, or the reason why there would have been none."""

    at: float  # unix time
    job: str
    seen: str  # the evidence; "": only time has passed
    done: str  # the consequence, as text


def jobs(folder: Path, only: str = "") -> dict[str, Recorded]:
    """Return the jobs of a run directory or of a service's state. Raises `NoJournal`, and the errors of reading a journal."""
    found = journal.read_all(folder / JOURNAL, only or None)
    if not found:
        raise NoJournal(orchestrators.NO_JOURNAL_OF_JOB(job=only, folder=folder) if only else orchestrators.NO_JOURNAL(folder=folder))
    return found


def evidence(recorded: Recorded) -> int:
    """Return the number of pieces of evidence."""
    return sum(isinstance(event, Observed) for _, event in recorded.events)


def steps(policy: Policy, recorded: Recorded) -> Iterator[Step]:
    machine = Machine(recorded.settings.spec, recorded.settings.timeouts)
    lines: list[str] = []
    responses = Responses(policy, lines.append)
    taints: dict[str, dict[tuple[str, str], Taint]] = {}  # by node: the taints of this policy
    job = recorded.settings.spec.job
    for then, event in recorded.events:
        machine.handle(event, then)
        state = _as_it_would_be(machine.state, taints, then)
        found: list[Event | None] = [responses.look(state, then)]
        seen = ""
        if isinstance(event, Observed):
            given = observed_as(event)
            news = responses.news(given)
            where = f"{event.part} of {event.name}" if event.part else event.name
            seen = f"{event.detector}: {where}: {event.detail}"
            found.append(responses.event_of(given, state, then, again=not news))
        for one in found:
            if one is None:
                continue
            if isinstance(one, NodeTainted):
                _put(taints.setdefault(one.node, {}), one)
            yield Step(then, job, seen, _described(one))
        for line in lines:
            yield Step(then, job, seen, line)
        lines.clear()


def _as_it_would_be(state: JobState, taints: dict[str, dict[tuple[str, str], Taint]], now: float) -> JobState:
    nodes = {}
    for name, node in state.nodes.items():
        mine = taints.get(name, {})
        for key in [key for key, taint in mine.items() if 0 < taint.until <= now]:
            del mine[key]
        kept = {key: taint for key, taint in node.taints.items() if key[0] in OURS}
        nodes[name] = replace(node, taints=kept | mine)
    return replace(state, nodes=nodes)


def _put(mine: dict[tuple[str, str], Taint], event: NodeTainted) -> None:
    key = event.source, event.part
    if event.reason:
        mine[key] = Taint(event.source, event.reason, event.part, event.until, event.leave)
    else:
        mine.pop(key, None)


def _described(event: Event) -> str:
    match event:
        case NodeTainted(reason=""):
            return service_jobs.WOULD_BE_TRUSTED(node=event.node, detector=event.source)
        case NodeTainted():
            would = service_jobs.WOULD_LEAVE if event.leave else service_jobs.WOULD_BE_TAINTED
            until = f" until {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(event.until))}" if event.until else ""
            return would(node=event.node, until=until, reason=event.reason)
        case MigrationAsked():
            return service_jobs.WOULD_MOVE(rank=event.rank, reason=event.reason)
        case WorkerLost():
            return service_jobs.WOULD_BE_ENDED(worker=event.worker, reason=event.detail)
        case _:
            return type(event).__name__
