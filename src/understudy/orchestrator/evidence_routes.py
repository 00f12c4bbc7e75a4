"""Routes by which others tell what speaks against a node: `webhook.py` has their words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query, Request
from pydantic import Field

from understudy.detectors.base import Evidence
from understudy.orchestrator.api_models import NOT_LET, REFUSED
from understudy.orchestrator.auth import Auth
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.security import Role
from understudy.orchestrator.webhook import MOST, NODE_LABELS, SUSPECT, Answer, Notification, Told

Items = Annotated[list[Told], Field(min_length=1, max_length=MOST)]
Labels = Annotated[list[str], Query(max_length=20, description="labels that may name the node, the first that does counts")]
Severities = Annotated[list[str], Query(max_length=20, description="values of the label `severity` of what is suspect; all else is a note")]


def add_evidence(app: FastAPI, jobs: Jobs, cluster: Cluster | None, auth: Auth) -> None:
    tells = auth.needs(Role.EVIDENCE, of_all=False)

    @app.post("/v1/evidence", **tells, responses=REFUSED)
    async def tell(items: Items, http: Request) -> list[Answer]:
        """Tell what speaks against nodes; what follows the policy of each job there says. Refused if none of the nodes is known; otherwise
        each answer says what became of its item.
        """
        now, known = time.time(), _known(jobs, cluster)
        answers = []
        for item in items:
            names = known.get(item.node, set())
            if len(names) != 1:
                answers.append(
                    Answer(node="", jobs=[], why_not=f"there is no node {item.node[:100]!r} here" if not names else "several have it")
                )
                continue
            answers.append(_passed_on(lambda node, item=item: item.evidence(node, now), next(iter(names)), http))  # type: ignore[misc]
        if not any(answer.node for answer in answers):
            raise HTTPException(409, "; ".join(dict.fromkeys(answer.why_not for answer in answers)))
        return answers

    @app.post("/v1/evidence/alertmanager", **tells, responses={**NOT_LET, 400: REFUSED[400], 422: REFUSED[422]})
    async def alerted(
        notification: Notification,
        http: Request,
        node_label: Labels = list(NODE_LABELS),  # noqa: B006
        suspect: Severities = list(SUSPECT),  # noqa: B006
    ) -> list[Answer]:
        """The webhook of Prometheus's Alertmanager. An alert that is resolved ends what followed from it. Alerts about nodes that are not
        known here are no error.
        """
        now, known = time.time(), _known(jobs, cluster)
        answers = []
        for alert in notification.alerts:
            try:
                node = alert.node(node_label, known)
            except ValueError as error:
                answers.append(Answer(node="", jobs=[], why_not=f"alert {alert.name[:100]}: {error}"))
                continue
            answers.append(_passed_on(lambda node, alert=alert: alert.evidence(node, suspect, now), node, http))  # type: ignore[misc]
        return answers

    def _passed_on(make: Callable[[str], Evidence], node: str, http: Request) -> Answer:
        try:
            evidence = make(node)
        except ValueError as error:
            return Answer(node=node, jobs=[], why_not=str(error))

        def may(job: str) -> bool:
            return any(grant.allows(Role.EVIDENCE, job) for grant in http.state.grants)

        told = cluster.observe(evidence, may) if cluster is not None else jobs.observe(evidence, may)
        return Answer(node=node, jobs=told)


def _known(jobs: Jobs, cluster: Cluster | None) -> dict[str, set[str]]:
    """Nodes by whatever they may be called: their names, addresses, and the first part of a host's name."""
    found: dict[str, set[str]] = {}
    places = [
        (node.name, node.address) for job in jobs.all() if not job.running.done() for node in job.service.machine.state.nodes.values()
    ]
    places += [(name, node.hello.address) for name, node in cluster.nodes.items()] if cluster is not None else []
    for name, address in places:
        for alias in {name, name.partition(".")[0], address} - {""}:
            found.setdefault(alias, set()).add(name)
    return found
