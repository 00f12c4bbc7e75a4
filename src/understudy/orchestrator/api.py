"""The HTTP interface of the orchestrator: for people and programs, and the agents' WebSockets.

Everything but `/v1/health` and the description of the interface (`/openapi.json`) wants `Authorization: Bearer TOKEN` or a client's
certificate, with a role that may do it (`x-role` in the description), unless the orchestrator was told to ask for none. Errors are
problem details (`problems.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from fastapi import FastAPI, HTTPException, Query, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, Field, TypeAdapter

import understudy
from understudy.core.events import Believed, MigrationAsked, NodeJoined, NodeTainted, StopAsked
from understudy.links.messages import Hello
from understudy.links.submission import Submission
from understudy.orchestrator import problems, views
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.entrance import Entrance
from understudy.orchestrator.jobs import Jobs, ServedJob
from understudy.orchestrator.limits import Limits, Pace
from understudy.orchestrator.metrics import CONTENT_TYPE, Metrics
from understudy.orchestrator.security import Access, Role
from understudy.orchestrator.service import AgentLink, Close
from understudy.orchestrator.stream import add_events

NOT_LET: dict[int | str, dict[str, object]] = dict.fromkeys((401, 403, 413, 429), problems.RESPONSE)
NO_ANSWER: dict[int | str, dict[str, object]] = {**NOT_LET, 404: problems.RESPONSE, 422: problems.RESPONSE}
REFUSED: dict[int | str, dict[str, object]] = {**NO_ANSWER, 400: problems.RESPONSE, 409: problems.RESPONSE}
STATUS = TypeAdapter(views.Status)


class Migrate(BaseModel):
    """A wish to move a rank."""

    rank: int = Field(ge=0, description="which")
    reason: str = Field(default="", max_length=1000, description="for the report")


class Believe(BaseModel):
    """Of a job that is held because replicas differ: what this rank holds is right."""

    rank: int = Field(ge=0, description="which")
    reason: str = Field(default="", max_length=1000, description="for the report")


class Taint(BaseModel):
    """A node that is not to be trusted, or is again."""

    node: str = Field(max_length=1000, description="its name")
    reason: str = Field(default="", max_length=1000, description="why it is not trusted; empty: it is trusted again")


class Stop(BaseModel):
    """A wish to end a job."""

    reason: str = Field(default="asked for", max_length=1000, description="for the journal and the job's last message")
    exit_code: int = Field(default=130, ge=0, le=255, description="what `understudy run` or `understudy logs --follow` exits with")


class Accepted(BaseModel):
    """The wish was passed on; status and report show what becomes of it."""

    accepted: bool = Field(default=True, description="always true")


class Health(BaseModel):
    """The orchestrator serves."""

    status: str = Field(default="ok", description="`ok`; or `degraded`: it serves, and `problems` says what it cannot do")
    problems: list[str] = Field(default_factory=list, description="in words; its own messages and the list of jobs tell more")
    version: str = Field(default=understudy.__version__, description="of Understudy")


class Submitted(BaseModel):
    """The job is known from now on, and waits for slots or starts."""

    job: str = Field(description="its name")


class JobLine(BaseModel):
    """A job in a list."""

    job: str = Field(description="its name")
    state: str = Field(description=f"one of {views.STATES}")
    step: int = Field(description="the last step that every rank has committed")
    ranks: int = Field(description="how many it has")
    generation: int = Field(description="how often the assignment of ranks to workers has changed")
    incidents: int = Field(description="how many so far")
    message: str = Field(description="how the job ended, or what it waits for")


class NodeLine(BaseModel):
    """A node in a list."""

    node: str = Field(description="its name")
    state: str = Field(description="`here`, or `away`: nothing is heard of its agent")
    taint: str = Field(description="why no new jobs go there; empty: they do")
    address: str = Field(description="where other nodes reach its workers")
    domain: str = Field(description="its failure domain; empty: one of its own")
    labels: dict[str, str] = Field(description="as its agent was given them")
    slots: int = Field(description="how many workers it takes")
    free: int = Field(description="slots that no job has")
    jobs: list[str] = Field(description="that have slots there")


class Peer(Protocol):
    """What is behind an agent's WebSocket."""

    def receive(self, link: AgentLink, text: str) -> None: ...

    def detach(self, link: AgentLink) -> None: ...


def create_app(jobs: Jobs, access: Access, cluster: Cluster | None = None, fence: int = 0) -> FastAPI:
    """Without a `cluster` no job can be submitted. `fence`: of the lease by which this orchestrator leads."""
    app = FastAPI(title="Understudy", version=understudy.__version__, docs_url=None, redoc_url=None)
    problems.install(app)
    entrance = Entrance(access, jobs)
    app.add_middleware(Limits)

    def found(job: str) -> ServedJob:
        known = jobs.get(job)
        if job in jobs.aside:
            raise HTTPException(409, f"job {job} is put aside: {jobs.aside[job]}")
        if known is None:
            raise HTTPException(404, f"there is no job {job!r} here")
        return known

    read, operate = entrance.needs(Role.READ), entrance.needs(Role.OPERATE)
    measured = Metrics(jobs, cluster)

    @app.get("/v1/health")
    async def health() -> Health:
        """Whether the orchestrator serves, and whether something hinders it. Needs no token."""
        problems = jobs.problems()
        return Health(status="degraded" if problems else "ok", problems=problems)

    @app.get("/v1/jobs", **entrance.needs(Role.READ, of_all=False), responses=NOT_LET)
    async def list_jobs(request: Request) -> list[JobLine]:
        """All jobs that one may look at, in the order in which they came, those that have ended included; then those put aside."""
        lines = [_line(job, cluster) for job in jobs.all()] + [_aside(job, why) for job, why in jobs.aside.items()]
        return [line for line in lines if any(g.allows(Role.READ, line.job) for g in request.state.grants)]

    @app.get("/v1/jobs/{job}/status", **read, responses=NO_ANSWER, response_model=views.Status)
    async def status(job: str) -> Response:
        """Who holds which rank, and how far the job is. Also after its end."""
        # Encoded here: FastAPI would check every rank of our own answer first, and the event loop has agents to serve.
        return Response(STATUS.dump_json(_status(found(job), cluster)), media_type="application/json")

    @app.get("/v1/jobs/{job}/report", **read, responses=NO_ANSWER)
    async def report(job: str) -> views.Report:
        """Every incident so far, phase by phase. Also after the job's end."""
        return views.report(found(job).service.machine)

    @app.post("/v1/jobs/{job}/migrate", **operate, responses=REFUSED)
    async def migrate(job: str, wish: Migrate) -> Accepted:
        """Move a healthy rank to a spare at a step boundary. Not during an incident, before the first step, or without a warm spare."""
        service = found(job).service
        why_not = service.machine.migration_refusal(wish.rank)
        if why_not:
            raise HTTPException(409, why_not)
        service.submit(MigrationAsked(wish.rank, wish.reason))
        return Accepted()

    @app.post("/v1/jobs/{job}/believe", **operate, responses=REFUSED)
    async def believe(job: str, wish: Believe) -> Accepted:
        """Let a job that is held go on with what this rank holds. Those that hold something else are replaced, and their nodes tainted."""
        service = found(job).service
        why_not = service.machine.belief_refusal(wish.rank)
        if why_not:
            raise HTTPException(409, why_not)
        service.submit(Believed(wish.rank, wish.reason))
        return Accepted()

    @app.post("/v1/jobs/{job}/taint", **operate, responses=REFUSED)
    async def taint(job: str, wish: Taint) -> Accepted:
        """Give a node no new spares or ranks of this job, and no new jobs, or take that back. Also after the job's end."""
        service = found(job).service
        if wish.node not in service.machine.state.nodes:
            raise HTTPException(409, f"job {job} has no node {wish.node}")
        service.submit(NodeTainted(wish.node, wish.reason))
        return Accepted()

    @app.post("/v1/jobs/{job}/stop", **operate, responses=REFUSED)
    async def stop(job: str, wish: Stop) -> Accepted:
        """End the job on all its nodes, or take it back if it waits for slots."""
        if cluster is not None and job in jobs.aside:
            cluster.end_parts(job)
        elif cluster is None:
            found(job).service.submit(StopAsked(wish.reason, wish.exit_code))
        else:
            cluster.stop(found(job), wish.reason, wish.exit_code)
        return Accepted()

    @app.get(
        "/v1/jobs/{job}/output",
        **read,
        responses={**REFUSED, 200: {"content": {"text/plain": {}}}},
        response_class=StreamingResponse,
    )
    async def output(
        job: str,
        offset: int = Query(0, ge=0, le=1 << 53, description="from this byte on"),
        follow: bool = Query(False, description="go on until the job has ended"),
    ) -> StreamingResponse:
        """What the workers of a submitted job have printed, each line with its rank and worker in front, in UTF-8."""
        kept = found(job).output
        if kept is None:
            raise HTTPException(409, "the output of this job goes to the terminals on which `understudy run` was started")
        return StreamingResponse(kept.read(offset, follow), media_type="text/plain; charset=utf-8")

    add_events(app, found, lambda: jobs.history, NO_ANSWER, **read)

    @app.get("/metrics", **read, responses=NOT_LET, response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus; [operations](operations.md) lists the metrics."""
        return Response(measured.text(), media_type=CONTENT_TYPE)

    @app.websocket("/v1/jobs/{job}/agent")
    async def part(socket: WebSocket, job: str) -> None:
        known = jobs.get(job)
        if known is None:  # an agent tries again after the first of these answers, and gives up after the second
            aside = jobs.aside.get(job)
            answer = problems.problem(404, f"there is no job {job!r} here") if aside is None else problems.problem(503, "it is put aside")
            await socket.send_denial_response(answer)
            return
        joined = await entrance.greet(socket, Role.WORKER, job, NodeJoined, fence)
        if isinstance(joined, NodeJoined):
            await _serve(socket, known.service, known.service.attach(joined))

    if cluster is not None:
        _add_cluster(app, cluster, entrance, fence)
    _describe_problems(app)
    return app


def _add_cluster(app: FastAPI, cluster: Cluster, entrance: Entrance, fence: int) -> None:
    read, submits = entrance.needs(Role.READ), entrance.needs(Role.SUBMIT, of_all=False)

    @app.post("/v1/jobs", status_code=201, **submits, responses=REFUSED)
    async def submit(request: Submission, http: Request) -> Submitted:
        """Submit a job, of a service. It starts as soon as there are slots for its ranks and spares. Its name must not have been used."""
        if not any(grant.allows(Role.SUBMIT, request.name) for grant in http.state.grants):
            raise HTTPException(403, f"this token may not submit a job named {request.name}")
        try:
            return Submitted(job=cluster.submit(request).name)
        except FileExistsError as error:
            raise HTTPException(409, str(error)) from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    @app.get("/v1/nodes", **read, responses=NOT_LET)
    async def list_nodes() -> list[NodeLine]:
        """All nodes, of a service, whose agents have ever been here since the orchestrator was started."""
        return [
            NodeLine(
                node=name,
                state="here" if node.link is not None else "away",
                taint=cluster.taint(name),
                address=node.hello.address,
                domain=node.hello.domain,
                labels=node.hello.labels,
                slots=node.hello.slots,
                free=node.free(),
                jobs=[part.job for part in node.hello.parts],
            )
            for name, node in sorted(cluster.nodes.items())
        ]

    @app.websocket("/v1/agent")
    async def agent(socket: WebSocket) -> None:
        hello = await entrance.greet(socket, Role.AGENT, "", Hello, fence)
        if isinstance(hello, Hello):
            await _serve(socket, cluster, cluster.attach(hello))


def _status(job: ServedJob, cluster: Cluster | None) -> views.Status:
    status = views.status(job.service.machine, job.service.pages)
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


async def _serve(socket: WebSocket, peer: Peer, link: AgentLink) -> None:
    """Carry frames both ways until either side closes."""
    sending = asyncio.create_task(_send(socket, link))
    pace = Pace()
    try:
        while True:
            try:
                for line in (await socket.receive_text()).split("\n"):
                    await pace.wait()
                    peer.receive(link, line)
            except KeyError:
                continue  # a binary frame
    except (WebSocketDisconnect, RuntimeError):
        pass  # RuntimeError: the socket was closed by `_send` while we waited
    finally:
        sending.cancel()
        peer.detach(link)


async def _send(socket: WebSocket, link: AgentLink) -> None:
    try:
        while not isinstance(item := await link.outbox.get(), Close):
            await socket.send_text(item)
        await socket.close(item.code, item.reason)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the receiving side sees it too, and detaches


def _describe_problems(app: FastAPI) -> None:
    make: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        description = make()
        problems.describe(description)
        for path in description["paths"].values():
            for operation in path.values():
                for parameter in operation.get("parameters", ()):
                    if parameter["name"] == "job":
                        parameter["description"] = "its name; `-` is the only job of an orchestrator that was started with `understudy run`"
        return description

    app.openapi = openapi  # type: ignore[method-assign]
