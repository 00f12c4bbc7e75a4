"""Routes about jobs: reading them (`add_reading`), requests to them (`add_wishes`), and their output."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from understudy.core.events import Believed, DrillAsked, MigrationAsked, NodeTainted, StopAsked
from understudy.core.state import BY_JOB, BY_SERVICE, DRAIN, OPERATOR
from understudy.messages import http_requests
from understudy.orchestrator import drains, views
from understudy.orchestrator.api_models import (
    NO_ANSWER,
    NOT_LET,
    REFUSED,
    Accepted,
    Believe,
    Drained,
    DrainNode,
    DrillAccepted,
    JobLine,
    Migrate,
    Stop,
    Taint,
    UndrainNode,
    WantDrill,
)
from understudy.orchestrator.auth import Auth
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs, ServedJob
from understudy.orchestrator.security import Role
from understudy.orchestrator.state_view import StateTable, state_table
from understudy.orchestrator.topology_view import TopologyTable, topology_steps

STATUS = TypeAdapter(views.Status)


class Finder:
    """Finds the job that a path names."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def __call__(self, job: str) -> ServedJob:
        """Return the job. Raises `HTTPException`."""
        known = self._jobs.get(job)
        if known is None and (why := self._jobs.why_aside(job)) is not None:
            raise HTTPException(409, http_requests.JOB_ASIDE(job=job, reason=why))
        if known is None:
            raise HTTPException(404, http_requests.NO_SUCH_JOB(job=job))
        return known


def add_reading(app: FastAPI, jobs: Jobs, found: Finder, cluster: Cluster | None, auth: Auth) -> None:
    read = auth.needs(Role.READ)

    @app.get("/v1/jobs", **auth.needs(Role.READ, of_all=False), responses=NOT_LET)
    async def list_jobs(request: Request) -> list[JobLine]:
        """List all jobs that the token may read, in the order of submission. Jobs that have ended are included. Jobs in the state
        `aside` are at the end of the list.
        """
        lines = [_line(job, cluster) for job in jobs.all()] + [_aside(job, why) for job, why in jobs.aside.items()]
        return [line for line in lines if any(g.allows(Role.READ, line.job) for g in request.state.grants)]

    @app.get("/v1/jobs/{job}/status", **read, responses=NO_ANSWER, response_model=views.Status)
    async def status(job: str) -> Response:
        """Show which worker holds which rank, and the progress of the job. Works after its end, too."""
        # Encoded here: FastAPI would validate every rank of our own answer first, and the event loop has agents to serve.
        return Response(STATUS.dump_json(_status(found(job), cluster)), media_type="application/json")

    @app.get("/v1/jobs/{job}/state", **read, responses=NO_ANSWER)
    async def state(job: str) -> StateTable:
        """Show registered state, and unregistered state that the script changes, as of the last comparison of all ranks. Works after the
        end of the job, too."""
        return state_table(found(job).service.machine)

    @app.get("/v1/jobs/{job}/topology", **read, responses=NO_ANSWER)
    async def topology(job: str) -> TopologyTable:
        """Show where each group of ranks is in the network, and what would happen if a node or domain were lost now. Works after the
        end of the job, too."""
        steps = topology_steps(found(job).service.machine)
        table = next(steps)
        for _ in steps:
            await asyncio.sleep(0)  # agents are served in between
        return table

    @app.get("/v1/jobs/{job}/report", **read, responses=NO_ANSWER)
    async def report(job: str) -> views.Report:
        """Show every incident so far, phase by phase. Works after the end of the job, too."""
        return views.report(found(job).service.machine)


def add_wishes(app: FastAPI, jobs: Jobs, found: Finder, cluster: Cluster | None, auth: Auth) -> None:
    operate = auth.needs(Role.OPERATE)

    @app.post("/v1/jobs/{job}/migrate", **operate, responses=REFUSED)
    async def migrate(job: str, wish: Migrate) -> Accepted:
        """Move a healthy rank to a spare at a step boundary. Refused during an incident, before the first step, and without a warm
        spare."""
        service = found(job).service
        if wish.device and not wish.to:
            raise HTTPException(409, http_requests.DEVICE_OF_WHICH_NODE(device=wish.device))
        why_not = service.machine.migration_refusal(wish.rank, wish.to, wish.device)
        if why_not:
            raise HTTPException(409, why_not)
        service.submit(MigrationAsked(wish.rank, wish.reason, wish.to, wish.device))
        return Accepted()

    @app.post("/v1/jobs/{job}/drill", **operate, responses=REFUSED)
    async def drill(job: str, wish: WantDrill) -> DrillAccepted:
        """Let a warm spare compute a step in parallel with a rank and compare them bit by bit; status shows the verdict. Training
        continues. The spare is used up. Refused during an incident or a migration, and without a warm spare.
        """
        service = found(job).service
        why_not = service.machine.drill_refusal(wish.rank)
        if why_not:
            raise HTTPException(409, why_not)
        number = service.machine.state.drilled + 1
        service.submit(DrillAsked(wish.rank, wish.reason))
        return DrillAccepted(number=number)

    @app.post("/v1/jobs/{job}/believe", **operate, responses=REFUSED)
    async def believe(job: str, wish: Believe) -> Accepted:
        """Let a paused job continue with the state of this rank. Replicas with different state are replaced, and their nodes
        tainted. If the job is paused because a redo differs from the interrupted step, or because an incident is unproven, all ranks have
        the same state: any rank can be named, and none is replaced.
        """
        service = found(job).service
        why_not = service.machine.belief_refusal(wish.rank)
        if why_not:
            raise HTTPException(409, why_not)
        service.submit(Believed(wish.rank, wish.reason))
        return Accepted()

    @app.post("/v1/jobs/{job}/taint", **operate, responses=REFUSED)
    async def taint(job: str, wish: Taint, request: Request) -> Accepted:
        """Taint a node, or one device of it, for this job, or remove the taint. A tainted node gets no new ranks or spares of the job.
        Works after the end of the job, too. The device must be one on which ranks are known to compute. To remove a taint that was set for
        all jobs of a service, the token needs the role for all jobs.
        """
        _let(request, found(job), [wish.node], "" if not wish.reason else OPERATOR)
        service = found(job).service
        node = service.machine.state.nodes.get(wish.node)
        if node is None:
            raise HTTPException(409, http_requests.JOB_HAS_NO_NODE(job=job, node=wish.node))
        if wish.device and not node.device_of(wish.device):
            known = ", ".join(sorted({*node.devices.values(), *node.device_names})) or "none"
            raise HTTPException(409, http_requests.NODE_HAS_NO_DEVICE(node=wish.node, device=wish.device, known=known))
        service.submit(NodeTainted(wish.node, wish.reason, part=wish.device, by=BY_JOB))
        return Accepted()

    @app.post("/v1/jobs/{job}/drain", **operate, responses=REFUSED)
    async def drain_node(job: str, wish: DrainNode, request: Request) -> Drained:
        """Drain a node, and others at the same time, for this job. Ranks that have a warm spare on another node move together, at one step
        boundary; the others follow when there are more spares. Then the job's spares on the node are ended. No new ones start there until
        `undrain`. Refused if it is known that some ranks will have no spare.
        """
        nodes = list(dict.fromkeys([wish.node, *wish.also]))
        _let(request, found(job), nodes if not wish.dry_run else (), DRAIN[0])
        try:
            plans = drains.ask([(found(job), nodes)], wish, BY_JOB)
        except drains.Refused as error:
            raise HTTPException(409, str(error)) from error
        return Drained(jobs=[plan.job for plan in plans], plans=plans)

    @app.post("/v1/jobs/{job}/undrain", **operate, responses=REFUSED)
    async def undrain_node(job: str, wish: UndrainNode, request: Request) -> Accepted:
        """Cancel the drain of a node for this job. Works after the end of the job, too."""
        _let(request, found(job), [wish.node], DRAIN[0])
        if not drains.take_back([found(job)], wish.node, wish):
            raise HTTPException(409, http_requests.JOB_HAS_NOT_DRAINED(job=job, node=wish.node))
        return Accepted()

    @app.post("/v1/jobs/{job}/stop", **operate, responses=REFUSED)
    async def stop(job: str, wish: Stop) -> Accepted:
        """End the job on all its nodes, or withdraw it if it is waiting for slots."""
        if cluster is not None and job in jobs.aside:
            cluster.end_parts(job)
        elif cluster is None:
            found(job).service.submit(StopAsked(wish.reason, wish.exit_code))
        else:
            cluster.stop(found(job), wish.reason, wish.exit_code)
        return Accepted()


def _let(request: Request, job: ServedJob, nodes: Iterable[str], source: str) -> None:
    """Check that the client may change the taints of this source on these nodes for this job; "": of all sources.

    Taints for all jobs can only be changed with authority over all jobs. Raises `HTTPException`.
    """
    known = [node for name in nodes if (node := job.service.machine.state.nodes.get(name)) is not None]
    shared = [(node.name, taint) for node in known for taint in node.taints.values() if taint.by == BY_SERVICE]
    wide = any(grant.allows(Role.OPERATE) for grant in request.state.grants)
    for name, taint in shared if not wide else ():
        if source in ("", taint.source):
            raise HTTPException(403, http_requests.SET_FOR_ALL_JOBS(node=name, reason=taint.reason))


def add_output(app: FastAPI, found: Finder, auth: Auth) -> None:
    read = auth.needs(Role.READ)

    @app.get(
        "/v1/jobs/{job}/output",
        **read,
        responses={**REFUSED, 200: {"content": {"text/plain": {}}}},
        response_class=StreamingResponse,
    )
    async def output(
        job: str,
        offset: int = Query(0, ge=0, le=1 << 53, description="first byte to return"),
        follow: bool = Query(False, description="continue until the job has ended"),
    ) -> StreamingResponse:
        """Return the output of a submitted job's workers, in UTF-8. Each line begins with its rank and worker."""
        kept = found(job).output
        if kept is None:
            raise HTTPException(409, http_requests.OUTPUT_ELSEWHERE())
        return StreamingResponse(kept.read(offset, follow), media_type="text/plain; charset=utf-8")


def _status(job: ServedJob, cluster: Cluster | None) -> views.Status:
    status = views.status(job.service.machine, job.service.pages, job.service.there)
    status["message"] = status["message"] or job.service.paused
    why = cluster.waiting.get(job.name) if cluster is not None else None
    return {**status, "state": "waiting", "message": why} if why is not None else status


def _line(job: ServedJob, cluster: Cluster | None) -> JobLine:
    status = _status(job, cluster)
    return JobLine(
        job=job.name,
        state=status["state"],
        step=status["step"],
        ranks=job.service.machine.state.spec.world_size,
        generation=status["generation"],
        incidents=status["incidents"],
        message=status["message"],
    )


def _aside(job: str, why: str) -> JobLine:
    return JobLine(job=job, state="aside", step=0, ranks=0, generation=0, incidents=0, message=why)
