"""Routes for evidence against nodes from an operator's programs and from Prometheus' Alertmanager.

It is handled like evidence of an agent: it goes to the policies of the jobs on the node, and in a service to the node, so that no new job
is placed there. A token that is limited to a job reaches the policy of that job only, and sees no other node.

The items of a list are handled one by one: an item without any effect does not block the others. A malformed list is rejected as a whole.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import Body, FastAPI, HTTPException, Query, Request

from understudy.detectors.alertmanager import AlertmanagerMessage, Reading, evidence_of
from understudy.detectors.base import Evidence, Severity
from understudy.detectors.labels import KnownNodes
from understudy.messages import http_requests
from understudy.orchestrator import problems
from understudy.orchestrator.api_models import NOT_LET
from understudy.orchestrator.auth import Auth
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.evidence_models import EvidenceItem, Heard
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.limits import Buckets
from understudy.orchestrator.security import Role

PER_MINUTE = 600.0  # pieces of evidence, for one kind of token and one address; this many at once after a while of rest
WRONG: dict[int | str, dict[str, object]] = {**NOT_LET, 400: problems.RESPONSE, 422: problems.RESPONSE}


class TooMuch(Exception):
    """There is more evidence than may be reported now."""

    def __init__(self, seconds: float) -> None:
        """Create the error. `seconds`: until more may be reported."""
        super().__init__(http_requests.TOO_MUCH_EVIDENCE(most=PER_MINUTE))
        self.headers = {"Retry-After": str(math.ceil(seconds))}


class Desk:
    """Takes evidence, and passes it to the jobs over which its sender has authority."""

    def __init__(self, jobs: Jobs, cluster: Cluster | None) -> None:
        self._jobs = jobs
        self._cluster = cluster
        self._buckets = Buckets(PER_MINUTE / 60, PER_MINUTE)

    def nodes(self, request: Request) -> KnownNodes:
        """Return the nodes about which the client may report."""
        may, found = _may(request), dict[str, set[str]]()
        for job in self._jobs.all():
            if not job.running.done() and may(job.name):
                for node in job.service.machine.state.nodes.values():
                    found.setdefault(node.name, set()).add(node.address)
        if self._cluster is not None and may(""):
            for name, served in self._cluster.nodes.items():
                found.setdefault(name, set()).add(served.hello.address)
        return KnownNodes(found)

    def take(self, request: Request, items: Sequence[Evidence | str]) -> list[Heard]:
        """Return the result for each item; a text is an item without effect, with the reason. Raises `TooMuch` before anything is taken."""
        may, now = _may(request), asyncio.get_running_loop().time()
        who = request.state.grants, request.client.host if request.client is not None else ""
        count = sum(isinstance(one, Evidence) for one in items)
        if seconds := self._buckets.of(who).take(now, count):
            raise TooMuch(seconds)
        return [Heard(node="", detector="", jobs=[], refused=one) if isinstance(one, str) else self._pass_on(one, may) for one in items]

    def _pass_on(self, evidence: Evidence, may: Callable[[str], bool]) -> Heard:
        listener = self._cluster if self._cluster is not None else self._jobs
        jobs = listener.observe(evidence, may)
        nowhere = not jobs and evidence.severity is Severity.NOTE
        refused = http_requests.NOTE_GOES_NOWHERE() if nowhere else ""
        return Heard(node=evidence.name, detector=evidence.detector, jobs=jobs, refused=refused)


def _may(request: Request) -> Callable[[str], bool]:
    """Return a function that checks whether the client has authority over a job; over "": all jobs, and nodes as such."""
    return lambda job: any(grant.allows(Role.EVIDENCE, job) for grant in request.state.grants)


def add_evidence(app: FastAPI, jobs: Jobs, cluster: Cluster | None, auth: Auth) -> None:
    desk = Desk(jobs, cluster)
    evidence_role = auth.needs(Role.EVIDENCE, of_all=False)

    @app.post("/v1/evidence", **evidence_role, responses=WRONG | {409: problems.RESPONSE})
    async def evidence(request: Request, items: Annotated[list[EvidenceItem], Body(min_length=1, max_length=100)]) -> list[Heard]:
        """Report evidence against nodes, 1 to 100 pieces. The policy of each job on the node determines the action. The answer has the
        result for each piece, in the same order: the jobs that received it, or why it had no effect, such as an unknown node. The answer is
        409 if no piece had any effect. With a token for one job, only that job receives the evidence.
        """
        nodes, now = desk.nodes(request), time.time()
        try:
            heard = desk.take(request, [item.evidence(nodes, now) for item in items])
        except TooMuch as error:
            raise HTTPException(429, str(error), error.headers) from error
        if all(one.refused for one in heard):
            reasons = list(dict.fromkeys(one.refused for one in heard))
            raise HTTPException(409, "; ".join(reasons[:5]) + f"; and {len(reasons) - 5} other reasons" * (len(reasons) > 5))
        return heard

    @app.post("/v1/evidence/alertmanager", **evidence_role, responses=WRONG | {503: problems.RESPONSE})
    async def alertmanager(request: Request, message: AlertmanagerMessage, reading: Annotated[Reading, Query()]) -> list[Heard]:
        """Accept alerts of Prometheus Alertmanager as [evidence](../operate/detectors-and-policy.md#evidence-from-elsewhere), as a webhook.
        When an alert is resolved, its consequences end. The answer has the result for each alert, in the same order; it is 200 even if no
        alert names a known node. Too much evidence gives 503 and not 429, because Alertmanager retries after 503.
        """
        found = evidence_of(message.alerts, desk.nodes(request), reading, time.time())
        try:
            heard = desk.take(request, found)
        except TooMuch as error:
            raise HTTPException(503, str(error), error.headers) from error
        for alert, one in zip(message.alerts, found, strict=True):
            if isinstance(one, str):
                reason = http_requests.ALERT_GOES_NOWHERE(alert=alert.name or "without a name", reason=one)
                jobs.tell_once(f"alert {alert.name}", reason)
        if message.truncated:
            jobs.tell_once("truncated", http_requests.ALERTS_LEFT_OUT())
        return heard
