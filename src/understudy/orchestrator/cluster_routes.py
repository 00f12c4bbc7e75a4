"""Routes that only a service has: jobs are submitted, nodes are listed and drained."""

from __future__ import annotations

from fastapi import FastAPI, HTTPException, Request

from understudy.links.submission import Submission
from understudy.messages import http_requests
from understudy.orchestrator import drains
from understudy.orchestrator.api_models import NOT_LET, REFUSED, Drain, Drained, NodeLine, Submitted, Undrain
from understudy.orchestrator.auth import Auth
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.security import Role


def add_cluster(app: FastAPI, cluster: Cluster, auth: Auth) -> None:
    read, submits, operate = auth.needs(Role.READ), auth.needs(Role.SUBMIT, of_all=False), auth.needs(Role.OPERATE)

    @app.post("/v1/jobs", status_code=201, **submits, responses=REFUSED)
    async def submit(request: Submission, http: Request) -> Submitted:
        """Submit a job to a service. It starts as soon as there are slots for its ranks and spares. Its name must not have been used."""
        if not any(grant.allows(Role.SUBMIT, request.name) for grant in http.state.grants):
            raise HTTPException(403, http_requests.NAME_NOT_ALLOWED(job=request.name))
        try:
            return Submitted(job=cluster.submit(request).name)
        except FileExistsError as error:
            raise HTTPException(409, str(error)) from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    @app.get("/v1/nodes", **read, responses=NOT_LET)
    async def list_nodes() -> list[NodeLine]:
        """List all nodes of a service whose agents have connected since the orchestrator was started."""
        return [
            NodeLine(
                node=name,
                state="here" if node.link is not None else "away",
                taint=cluster.taint(name),
                drain=cluster.drain_stage(name),
                address=node.hello.address,
                domain=node.hello.domain,
                labels=node.hello.labels,
                slots=node.hello.slots,
                free=node.free(),
                jobs=[part.job for part in node.hello.parts],
            )
            for name, node in sorted(cluster.nodes.items())
        ]

    @app.post("/v1/nodes/{node}/drain", **operate, responses=REFUSED)
    async def drain(node: str, wish: Drain) -> Drained:
        """Empty a node, and others at the same time, of all jobs of a service, and give them no new ones. Refused, for all of them, if
        one job cannot leave them.
        """
        for name in (node, *wish.also):
            if name not in cluster.nodes and not cluster.jobs_on(name):
                raise HTTPException(404, http_requests.NO_SUCH_NODE(node=name))
        try:
            plans = cluster.drain(node, wish)
            return Drained(jobs=[plan.job for plan in plans], plans=plans)
        except drains.Refused as error:
            raise HTTPException(409, str(error)) from error

    @app.post("/v1/nodes/{node}/undrain", **operate, responses=REFUSED)
    async def undrain(node: str, wish: Undrain) -> Drained:
        """Cancel the drain of a node of a service, for all its jobs."""
        if not cluster.drain_stage(node):
            raise HTTPException(409, http_requests.NODE_NOT_DRAINED(node=node))
        return Drained(jobs=cluster.undrain(node, wish))
