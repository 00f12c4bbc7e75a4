"""Drain nodes: for one job, or in a service for all its jobs. (`marks.py` keeps the service's drains for future jobs.)"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from understudy.core import drain
from understudy.core.events import NodeTainted
from understudy.core.state import CHECK, DRAIN
from understudy.messages import http_requests
from understudy.orchestrator import taints_view
from understudy.orchestrator.api_models import Drain, DrainPlan, Undrain
from understudy.orchestrator.jobs import ServedJob

_ORDER = ("", "drained", "draining", "late")  # of a node with several jobs, the last of these counts


class Refused(Exception):
    """A drain is not possible. The text names the job that cannot do without the node, and the reason."""


def ask(wanted: Sequence[tuple[ServedJob, Sequence[str]]], wish: Drain, by: str) -> list[DrainPlan]:
    """Drain nodes of each of these jobs, or of none of them, and return the plans. `by`: as in `state.Taint`. Raises `Refused`."""
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
        job.service.submit(NodeTainted(first, reason, *DRAIN, leave=True, deadline=deadline, lose=lose, also=tuple(others), by=by))
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
    """Cancel the drain of a node, and return the names of the jobs that had drained it."""
    having = [job for job in jobs if (known := job.service.machine.state.nodes.get(node)) is not None and known.drain is not None]
    for job in having:
        job.service.submit(NodeTainted(node, "", *DRAIN))
        if not wish.check:
            job.service.submit(NodeTainted(node, "", *CHECK))
    return [job.name for job in having]


def stage(jobs: Iterable[ServedJob], node: str) -> str:
    """Return the stage of a node's drain over all jobs, as in `api_models.NodeLine`."""
    stages = {
        found["stage"]
        for job in jobs
        if node in job.service.machine.state.nodes
        for found in taints_view.drains(job.service.machine.state, job.service.there)
        if found["node"] == node
    }
    return max(stages, key=_ORDER.index, default="")
