"""The HTTP interface of the orchestrator: for people and programs, and the agents' WebSocket.

Everything but the description of the interface (`/openapi.json`) wants `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import asyncio

from fastapi import Depends, FastAPI, HTTPException, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field

import understudy
from understudy.core.events import MigrationAsked, NodeJoined, StopAsked
from understudy.links.messages import BadMessage, decode
from understudy.orchestrator import views
from understudy.orchestrator.security import authorized
from understudy.orchestrator.service import POLICY_VIOLATION, AgentLink, Close, Service

HELLO = 10.0  # seconds for an agent to say who it is


class Migrate(BaseModel):
    rank: int = Field(ge=0)
    reason: str = Field(default="", max_length=1000)


class Stop(BaseModel):
    reason: str = Field(default="asked for", max_length=1000)
    exit_code: int = Field(default=130, ge=0, le=255)


class Accepted(BaseModel):
    accepted: bool = True


def create_app(service: Service, token: str) -> FastAPI:
    app = FastAPI(title="Understudy", version=understudy.__version__, docs_url=None, redoc_url=None)
    bearer = HTTPBearer(auto_error=False, description="the token in RUN_DIR/token")

    def check(request: Request, _: object = Depends(bearer)) -> None:
        if not authorized(request.headers.get("authorization"), token):
            raise HTTPException(401, "a valid token is needed", {"WWW-Authenticate": "Bearer"})

    guarded = [Depends(check)]
    refused: dict[int | str, dict[str, object]] = {401: {"description": "no valid token"}}

    @app.get("/status", dependencies=guarded, responses=refused)
    async def status() -> views.Status:
        """Who holds which rank, and how far the job is."""
        return views.status(service.machine, service.pages)

    @app.get("/report", dependencies=guarded, responses=refused)
    async def report() -> views.Report:
        """Every incident so far, phase by phase."""
        return views.report(service.machine)

    @app.post("/migrate", dependencies=guarded, responses={**refused, 409: {"description": "not now, and why"}})
    async def migrate(wish: Migrate) -> Accepted:
        """Move a healthy rank to a spare at a step boundary."""
        why_not = service.machine.migration_refusal(wish.rank)
        if why_not:
            raise HTTPException(409, why_not)
        service.submit(MigrationAsked(wish.rank, wish.reason))
        return Accepted()

    @app.post("/stop", dependencies=guarded, responses=refused)
    async def stop(wish: Stop) -> Accepted:
        """End the job."""
        service.submit(StopAsked(wish.reason, wish.exit_code))
        return Accepted()

    @app.websocket("/agent")
    async def agent(socket: WebSocket) -> None:
        if not authorized(socket.headers.get("authorization"), token):
            await socket.send_denial_response(Response("a valid token is needed", 401))
            return
        await socket.accept()
        try:
            joined = decode(await asyncio.wait_for(socket.receive_text(), HELLO))
        except (TimeoutError, BadMessage, KeyError):
            joined = None
        except WebSocketDisconnect:
            return
        if not isinstance(joined, NodeJoined):
            await socket.close(POLICY_VIOLATION, "the first message must be NodeJoined")
            return
        await _serve(socket, service, service.attach(joined))

    return app


async def _serve(socket: WebSocket, service: Service, link: AgentLink) -> None:
    """Carry frames both ways until either side closes."""
    sending = asyncio.create_task(_send(socket, link))
    try:
        while True:
            try:
                service.receive(link, await socket.receive_text())
            except KeyError:
                continue  # a binary frame
    except (WebSocketDisconnect, RuntimeError):
        pass  # RuntimeError: the socket was closed by `_send` while we waited
    finally:
        sending.cancel()
        service.detach(link)


async def _send(socket: WebSocket, link: AgentLink) -> None:
    try:
        while not isinstance(item := await link.outbox.get(), Close):
            await socket.send_text(item)
        await socket.close(item.code, item.reason)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the receiving side sees it too, and detaches
