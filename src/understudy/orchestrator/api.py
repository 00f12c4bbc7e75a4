"""The HTTP interface of the orchestrator, and the agents' WebSockets.

Everything except `/v1/health` and the description of the interface (`/openapi.json`) requires `Authorization: Bearer TOKEN` or a client
certificate, with a role that allows it (`x-role` in the description), unless the orchestrator was started without authentication. Errors
are problem details (`problems.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse

import understudy
from understudy.orchestrator import problems
from understudy.orchestrator.api_models import NO_ANSWER, NOT_LET, Health
from understudy.orchestrator.auth import Auth
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.cluster_routes import add_cluster
from understudy.orchestrator.evidence_routes import add_evidence
from understudy.orchestrator.job_routes import Finder, add_output, add_reading, add_wishes
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.limits import Limits
from understudy.orchestrator.metrics import CONTENT_TYPE, Metrics
from understudy.orchestrator.security import Access, Role
from understudy.orchestrator.sockets import add_nodes, add_parts
from understudy.orchestrator.stream import add_events

DESCRIPTION = """\
Every request needs `Authorization: Bearer TOKEN`, or a client's certificate. Without either the answer is 401; without the role that
the request needs (`x-role` in the OpenAPI description), 403. The address of an orchestrator that `understudy run` has started is in
`orchestrator.json` of the run directory, and its token in `token`.

If several orchestrators serve a job, `orchestrator.json` has all addresses, separated by commas. Only the leader serves requests. The
others answer every request with 503, and `detail` names the leader, if it is known. The numbers of events stay the same when the leader
changes.

Errors are problem details (RFC 9457). `detail` says what to do. `code` is explained by `understudy explain`, and stays the same when the
wording changes.

`GET /openapi.json` returns this description for programs, without a token. A *service* is an orchestrator that was started with
`understudy orchestrator`; requests "of a service" exist only there.
"""


def create_app(jobs: Jobs, access: Access, cluster: Cluster | None = None, fence: int = 0) -> FastAPI:
    """Without a `cluster` no job can be submitted. `fence`: of the lease by which this orchestrator leads."""
    app = FastAPI(title="Understudy", description=DESCRIPTION, version=understudy.__version__, docs_url=None, redoc_url=None)
    problems.install(app)
    auth, found = Auth(access, jobs), Finder(jobs)
    app.add_middleware(Limits)
    # The order of these calls is the order of the description.
    _add_health(app, jobs)
    add_reading(app, jobs, found, cluster, auth)
    add_wishes(app, jobs, found, cluster, auth)
    add_evidence(app, jobs, cluster, auth)
    add_output(app, found, auth)
    add_events(app, found, lambda: jobs.history, NO_ANSWER, **auth.needs(Role.READ))
    _add_metrics(app, Metrics(jobs, cluster), auth)
    add_parts(app, jobs, cluster, auth, fence)
    if cluster is not None:
        add_cluster(app, cluster, auth)
        add_nodes(app, cluster, auth, fence)
    _describe_problems(app)
    return app


def _add_health(app: FastAPI, jobs: Jobs) -> None:
    @app.get("/v1/health")
    async def health() -> Health:
        """Show whether the orchestrator serves requests, and its problems. Needs no token."""
        problems = jobs.problems()
        return Health(status="degraded" if problems else "ok", problems=problems)


def _add_metrics(app: FastAPI, measured: Metrics, auth: Auth) -> None:
    @app.get("/metrics", **auth.needs(Role.READ), responses=NOT_LET, response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return [metrics](metrics.md) for Prometheus."""
        return Response(measured.text(), media_type=CONTENT_TYPE)


def _describe_problems(app: FastAPI) -> None:
    make: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        description = make()
        problems.describe(description)
        for path in description["paths"].values():
            for operation in path.values():
                for parameter in operation.get("parameters", ()):
                    if parameter["name"] == "job":
                        parameter["description"] = (
                            "name of the job; `-` is the only job of an orchestrator that was started with `understudy run`"
                        )
        return description

    app.openapi = openapi  # type: ignore[method-assign]
