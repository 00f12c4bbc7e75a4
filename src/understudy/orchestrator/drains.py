"""Draining nodes: of one job, and of a service, for all its jobs and those to come.

A service keeps the names of drained nodes in a file beside its journal, so that a node without any job stays drained, too, when the service
is started again. Known limit: of several orchestrators on different hosts each has a folder of its own; another one that takes over knows
what its jobs know, and of nodes without a job nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from understudy.core import drain
from understudy.core.events import NodeTainted
from understudy.core.state import CHECK, DRAIN
from understudy.messages import http_requests, service_jobs
from understudy.orchestrator import doubts
from understudy.orchestrator.api_models import Drain, DrainPlan, Undrain
from understudy.orchestrator.jobs import ServedJob

FILE = "drained.json"
_ORDER = ("", "drained", "draining", "late")  # of a node that several jobs have, the last of these counts


class Refused(Exception):
    """Says which job cannot do without the node, and why."""


def ask(wanted: Sequence[tuple[ServedJob, Sequence[str]]], wish: Drain) -> list[DrainPlan]:
    """Drain nodes of each of these jobs, or of none of them, and return what that takes. Raises `Refused`."""
    plans = [_plan(job, nodes) for job, nodes in wanted]
    if wish.dry_run:
        return plans
    refused = {plan.job: plan.refused for plan in plans if plan.refused}
    if refused and not wish.force:
        several = (http_requests.OF_JOB(job=name, reason=why) if len(wanted) > 1 else why for name, why in refused.items())
        raise Refused("; ".join(several))
    deadline = time.time() + wish.deadline if wish.deadline is not None else 0.0
    reason, lose = wish.reason or "requested", wish.then == "lose"
    for job, (first, *others) in wanted:
        job.service.submit(NodeTainted(first, reason, *DRAIN, leave=True, deadline=deadline, lose=lose, also=tuple(others)))
    return plans


def _plan(job: ServedJob, nodes: Sequence[str]) -> DrainPlan:
    state = job.service.machine.state
    found = drain.plan(state, nodes)
    return DrainPlan(
        job=job.name,
        ranks=list(found.ranks),
        warm=found.warm,
        coming=found.coming,
        pauses=found.pauses(state.spec.world_size),
        waiting=found.wait,
        refused=found.refused,
    )


def take_back(jobs: Iterable[ServedJob], node: str, wish: Undrain) -> list[str]:
    """Gives the names of those that had drained it."""
    having = [job for job in jobs if (known := job.service.machine.state.nodes.get(node)) is not None and known.drain is not None]
    for job in having:
        job.service.submit(NodeTainted(node, "", *DRAIN))
        if not wish.check:
            job.service.submit(NodeTainted(node, "", *CHECK))
    return [job.name for job in having]


def stage(jobs: Iterable[ServedJob], node: str) -> str:
    """How far a node is, over all jobs, as in `api_models.NodeLine`."""
    stages = {
        found["stage"]
        for job in jobs
        if node in job.service.machine.state.nodes
        for found in doubts.drains(job.service.machine.state, job.service.there)
        if found["node"] == node
    }
    return max(stages, key=_ORDER.index, default="")


class DrainedNodes:
    """Of a service: nodes that get no new jobs, because a person wants them empty, and why."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self._file = folder / FILE
        self._tell = tell
        self._known: dict[str, str] = {}
        try:
            found = json.loads(self._file.read_text())
            self._known = {str(node): str(why) for node, why in found.items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, AttributeError) as error:
            tell(service_jobs.DRAINS_UNREADABLE(path=self._file, reason=str(error)))

    def get(self, node: str) -> str:
        """Why; "" if it is not drained."""
        return self._known.get(node, "")

    def put(self, node: str, why: str) -> None:
        """`why` "": it is not drained any more."""
        if why:
            self._known[node] = why
        else:
            self._known.pop(node, None)
        unfinished = self._file.with_name(f".{FILE}.{os.getpid()}")
        try:
            unfinished.write_text(json.dumps(self._known) + "\n")
            unfinished.rename(self._file)
        except OSError as error:
            self._tell(service_jobs.DRAINS_UNWRITTEN(path=self._file, reason=str(error)))
