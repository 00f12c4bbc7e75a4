"""Routes that only a service has: jobs are submitted, nodes are listed and drained."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, HTTPException, Request

from understudy.links.submission import Submission
from understudy.messages import http_requests
from understudy.orchestrator import drains, problems
from understudy.orchestrator.api_models import NOT_LET, REFUSED, Accepted, Drain, Drained, NodeLine, Submitted, TaintNode, Undrain
from understudy.orchestrator.auth import Auth
from understudy.orchestrator.cluster import Cluster, TooManyWaiting
from understudy.orchestrator.security import Role
from understudy.policy.rules import default, parse


def add_cluster(app: FastAPI, cluster: Cluster, auth: Auth) -> None:
    reading = asyncio.Lock()
    read, submits, operate = auth.needs(Role.READ), auth.needs(Role.SUBMIT, of_all=False), auth.needs(Role.OPERATE)

    @app.post("/v1/jobs", status_code=201, **submits, responses=REFUSED | {429: problems.RESPONSE})
    async def submit(request: Submission, http: Request) -> Submitted:
        """Submit a job to a service. It starts as soon as there are slots for its ranks and spares. Its name must not have been used.
        The answer is 429 if too many jobs are waiting, either in total or from this token or certificate.
        """
        if not any(grant.allows(Role.SUBMIT, request.name) for grant in http.state.grants):
            raise HTTPException(403, http_requests.NAME_NOT_ALLOWED(job=request.name))
        try:
            policy = default()
            if request.policy:
                async with reading:  # one after the other in a thread, because agents are served here
                    policy = await asyncio.to_thread(parse, request.policy, "policy")
            return Submitted(job=cluster.submit(request, policy, auth.holder(http)).name)
        except TooManyWaiting as error:
            raise HTTPException(429, str(error)) from error
        except FileExistsError as error:
            raise HTTPException(409, str(error)) from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    @app.get("/v1/nodes", **read, responses=NOT_LET)
    async def list_nodes() -> list[NodeLine]:
        """List the nodes of a service: all that are connected, were connected within the last day, or still run a job."""
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
                jobs=cluster.jobs_shown(node),
            )
            for name, node in sorted(cluster.nodes.items())
        ]

    @app.post("/v1/nodes/{node}/drain", **operate, responses=REFUSED)
    async def drain(node: str, wish: Drain) -> Drained:
        """Drain a node of a service, and others at the same time, for all its jobs. These nodes get no new jobs. If one
        job cannot leave them, the whole request is refused.
        """
        for name in (node, *wish.also):
            if not cluster.is_known(name):
                raise HTTPException(404, http_requests.NO_SUCH_NODE(node=name))
        try:
            plans = cluster.drain(node, wish)
            return Drained(jobs=[plan.job for plan in plans], plans=plans)
        except drains.Refused as error:
            raise HTTPException(409, str(error)) from error

    @app.post("/v1/nodes/{node}/taint", **operate, responses=REFUSED)
    async def taint(node: str, wish: TaintNode) -> Accepted:
        """Taint a node of a service for all its jobs, or remove the taint. A tainted node gets no new jobs, and no new ranks or spares of
        the jobs that already run there. Removing the taint also removes the node's taints for single jobs, and the evidence against the
        node.
        """
        if not cluster.is_known(node):
            raise HTTPException(404, http_requests.NO_SUCH_NODE(node=node))
        if wish.reason:
            cluster.set_taint(node, wish.reason)
        else:
            cluster.trust(node)
        return Accepted()

    @app.post("/v1/nodes/{node}/undrain", **operate, responses=REFUSED)
    async def undrain(node: str, wish: Undrain) -> Drained:
        """Cancel the drain of a node of a service, for all its jobs."""
        if not cluster.drain_stage(node):
            raise HTTPException(409, http_requests.NODE_NOT_DRAINED(node=node))
        return Drained(jobs=cluster.undrain(node, wish))
