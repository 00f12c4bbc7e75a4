"""The HTTP interface of the orchestrator: for people and programs, and the agents' WebSockets.

Everything but `/v1/health` and the description of the interface (`/openapi.json`) wants `Authorization: Bearer TOKEN`, unless the
orchestrator was told to ask for none. Errors are problem details (`problems.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field

import understudy
from understudy.core.events import MigrationAsked, NodeJoined, StopAsked
from understudy.links.messages import FENCE, BadMessage, Hello, Message, decode
from understudy.orchestrator import problems, views
from understudy.orchestrator.cluster import Cluster, Submission
from understudy.orchestrator.jobs import Job, Jobs
from understudy.orchestrator.metrics import CONTENT_TYPE, Metrics
from understudy.orchestrator.security import authorized
from understudy.orchestrator.service import POLICY_VIOLATION, AgentLink, Close

HELLO = 10.0  # seconds for an agent to say who it is
NO_ANSWER: dict[int | str, dict[str, object]] = {401: problems.RESPONSE, 404: problems.RESPONSE, 422: problems.RESPONSE}
REFUSED: dict[int | str, dict[str, object]] = {**NO_ANSWER, 400: problems.RESPONSE, 409: problems.RESPONSE}


class Migrate(BaseModel):
    rank: int = Field(ge=0)
    reason: str = Field(default="", max_length=1000)


class Stop(BaseModel):
    reason: str = Field(default="asked for", max_length=1000)
    exit_code: int = Field(default=130, ge=0, le=255)


class Accepted(BaseModel):
    accepted: bool = True


class Health(BaseModel):
    status: str = "ok"
    version: str = understudy.__version__


class Submitted(BaseModel):
    job: str


class JobLine(BaseModel):
    """A job in a list."""

    job: str
    state: str
    step: int
    ranks: int
    generation: int
    incidents: int
    message: str


class NodeLine(BaseModel):
    """A node in a list."""

    node: str
    state: str = Field(description="here, or away: nothing is heard of its agent")
    address: str
    domain: str
    labels: dict[str, str]
    slots: int
    free: int
    jobs: list[str]


class Peer(Protocol):
    """What is behind an agent's WebSocket."""

    def receive(self, link: AgentLink, text: str) -> None: ...

    def detach(self, link: AgentLink) -> None: ...


def create_app(jobs: Jobs, token: str | None, cluster: Cluster | None = None, fence: int = 0) -> FastAPI:
    """`token`: None asks for none. Without a `cluster` no job can be submitted. `fence`: of the lease by which this orchestrator leads."""
    app = FastAPI(title="Understudy", version=understudy.__version__, docs_url=None, redoc_url=None)
    problems.install(app)
    bearer = HTTPBearer(auto_error=False, description="the token in RUN_DIR/token, or the service's")

    def check(request: Request, _: object = Depends(bearer)) -> None:
        if not authorized(request.headers.get("authorization"), token):
            raise HTTPException(401, "a valid token is needed", {"WWW-Authenticate": "Bearer"})

    def found(job: str) -> Job:
        known = jobs.get(job)
        if known is None:
            raise HTTPException(404, f"there is no job {job!r} here")
        return known

    guarded = [Depends(check)]
    measured = Metrics(jobs, cluster)

    @app.get("/v1/health")
    async def health() -> Health:
        """Whether the orchestrator serves."""
        return Health()

    @app.get("/v1/jobs", dependencies=guarded, responses={401: problems.RESPONSE})
    async def list_jobs() -> list[JobLine]:
        """All jobs in the order in which they came, those that have ended included."""
        return [_line(job, cluster) for job in jobs.all()]

    @app.get("/v1/jobs/{job}/status", dependencies=guarded, responses=NO_ANSWER)
    async def status(job: str) -> views.Status:
        """Who holds which rank, and how far the job is."""
        return _status(found(job), cluster)

    @app.get("/v1/jobs/{job}/report", dependencies=guarded, responses=NO_ANSWER)
    async def report(job: str) -> views.Report:
        """Every incident so far, phase by phase."""
        return views.report(found(job).service.machine)

    @app.post("/v1/jobs/{job}/migrate", dependencies=guarded, responses=REFUSED)
    async def migrate(job: str, wish: Migrate) -> Accepted:
        """Move a healthy rank to a spare at a step boundary."""
        service = found(job).service
        why_not = service.machine.migration_refusal(wish.rank)
        if why_not:
            raise HTTPException(409, why_not)
        service.submit(MigrationAsked(wish.rank, wish.reason))
        return Accepted()

    @app.post("/v1/jobs/{job}/stop", dependencies=guarded, responses=REFUSED)
    async def stop(job: str, wish: Stop) -> Accepted:
        """End the job."""
        if cluster is None:
            found(job).service.submit(StopAsked(wish.reason, wish.exit_code))
        else:
            cluster.stop(found(job), wish.reason, wish.exit_code)
        return Accepted()

    @app.get(
        "/v1/jobs/{job}/output",
        dependencies=guarded,
        responses={**REFUSED, 200: {"content": {"text/plain": {}}}},
        response_class=StreamingResponse,
    )
    async def output(job: str, offset: int = Query(0, ge=0, le=1 << 53), follow: bool = False) -> StreamingResponse:
        """What the job's workers have printed, with prefixes, from byte `offset` on; with `follow` until the job ends."""
        kept = found(job).output
        if kept is None:
            raise HTTPException(409, "the output of this job goes to the terminals on which `understudy run` was started")
        return StreamingResponse(kept.read(offset, follow), media_type="text/plain; charset=utf-8")

    @app.get("/metrics", dependencies=guarded, responses={401: problems.RESPONSE}, response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(measured.text(), media_type=CONTENT_TYPE)

    @app.websocket("/v1/jobs/{job}/agent")
    async def part(socket: WebSocket, job: str) -> None:
        known = jobs.get(job)
        if known is None:
            await socket.send_denial_response(Response("there is no such job", 404))
            return
        joined = await _greet(socket, known.token, NodeJoined, fence)
        if isinstance(joined, NodeJoined):
            await _serve(socket, known.service, known.service.attach(joined))

    if cluster is not None:
        _add_cluster(app, cluster, token, guarded, fence)
    _describe_problems(app)
    return app


def _add_cluster(app: FastAPI, cluster: Cluster, token: str | None, guarded: list[object], fence: int) -> None:
    @app.post("/v1/jobs", status_code=201, dependencies=guarded, responses=REFUSED)  # type: ignore[arg-type]
    async def submit(request: Submission) -> Submitted:
        """Submit a job. It starts as soon as there are slots for its ranks and spares."""
        try:
            return Submitted(job=cluster.submit(request).name)
        except FileExistsError as error:
            raise HTTPException(409, str(error)) from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    @app.get("/v1/nodes", dependencies=guarded, responses={401: problems.RESPONSE})  # type: ignore[arg-type]
    async def list_nodes() -> list[NodeLine]:
        """All nodes whose agents have ever been here since the orchestrator was started."""
        return [
            NodeLine(
                node=name,
                state="here" if node.link is not None else "away",
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
        hello = await _greet(socket, token, Hello, fence)
        if isinstance(hello, Hello):
            await _serve(socket, cluster, cluster.attach(hello))


def _status(job: Job, cluster: Cluster | None) -> views.Status:
    status = views.status(job.service.machine, job.service.pages)
    why = cluster.waiting.get(job.name) if cluster is not None else None
    return {**status, "state": "waiting", "message": why} if why is not None else status


def _line(job: Job, cluster: Cluster | None) -> JobLine:
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


async def _greet(socket: WebSocket, token: str | None, kind: type[NodeJoined | Hello], fence: int) -> Message | None:
    """The agent's first message, which must be of this `kind`; None if it was sent away."""
    if not authorized(socket.headers.get("authorization"), token):
        await socket.send_denial_response(Response("a valid token is needed", 401))
        return None
    await socket.accept(headers=[(FENCE.encode(), str(fence).encode())])
    said: Message | None = None
    try:
        with suppress(TimeoutError, BadMessage, KeyError):
            said = decode(await asyncio.wait_for(socket.receive_text(), HELLO))
    except WebSocketDisconnect:
        return None
    if not isinstance(said, kind):
        await socket.close(POLICY_VIOLATION, f"the first message must be {kind.__name__}")
        return None
    return said


async def _serve(socket: WebSocket, peer: Peer, link: AgentLink) -> None:
    """Carry frames both ways until either side closes."""
    sending = asyncio.create_task(_send(socket, link))
    try:
        while True:
            try:
                for line in (await socket.receive_text()).split("\n"):
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
    make: Callable[[], dict[str, object]] = app.openapi

    def openapi() -> dict[str, object]:
        description = make()
        components = description.setdefault("components", {})
        assert isinstance(components, dict)
        components.setdefault("schemas", {})["Problem"] = problems.SCHEMA
        return description

    app.openapi = openapi  # type: ignore[method-assign]
