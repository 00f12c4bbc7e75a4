"""Authentication and authorization of every route and every agent's WebSocket."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import Any

from fastapi import Depends, HTTPException, Request, WebSocket, WebSocketDisconnect
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection

from understudy.common.bounds import plain
from understudy.core.events import NodeJoined
from understudy.links.messages import FENCE, BadMessage, Hello, Message, NodeTooLong, decode
from understudy.links.proof import NONCE
from understudy.messages import http_requests, service_jobs
from understudy.orchestrator.agent_link import POLICY_VIOLATION, TRY_LATER, shortened
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.problems import problem
from understudy.orchestrator.security import Access, Grant, Role, Unknown

HELLO = 10.0  # seconds for an agent to send its first message


def _needed(role: Role, job: str, *, of_all: bool = False) -> str:
    if job:
        return http_requests.ROLE_NEEDED_FOR_JOB(role=role, job=job)
    return http_requests.ROLE_NEEDED_FOR_ALL(role=role) if of_all else http_requests.ROLE_NEEDED(role=role)


class Auth:
    """Checks the credentials of requests and agents."""

    def __init__(self, access: Access, jobs: Jobs) -> None:
        self._access = access
        self._jobs = jobs
        self._bearer = HTTPBearer(auto_error=False, description="the secret, or a token made from it by `understudy token`")

    def needs(self, role: Role, *, of_all: bool = True) -> dict[str, Any]:
        """Return the dependencies of a route that needs this role. A route without a job in its path concerns all jobs (`of_all`), or
        checks the grants itself.
        """

        def check(request: Request, _: object = Depends(self._bearer)) -> None:
            grants = self.grants(request)
            job = self._name(request.path_params.get("job", ""))
            if not any(grant.allows(role, job if job or of_all else grant.job) for grant in grants):
                raise HTTPException(403, _needed(role, job, of_all=of_all))
            request.state.grants = grants

        return {"dependencies": [Depends(check)], "openapi_extra": {"x-role": role.value}}

    def grants(self, connection: HTTPConnection) -> tuple[Grant, ...]:
        """Return the grants of a connection. Raises `HTTPException`."""
        try:
            return self._access.grants(connection.headers.get("authorization"), getattr(connection.state, "certificate", None))
        except Unknown as error:
            raise HTTPException(401, str(error), {"WWW-Authenticate": "Bearer"}) from error

    @staticmethod
    def holder(connection: HTTPConnection) -> str:
        """Return a text that distinguishes one accepted credential from another; "" if none is required."""
        given = (connection.headers.get("authorization") or "").partition(" ")[2].strip()
        certificate = getattr(connection.state, "certificate", None) or {}
        # The last part of a token, its signature, can be written in several ways.
        text = given.rpartition(".")[0] or given or "".join(str(certificate.get(name, "")) for name in ("issuer", "serialNumber"))
        return hashlib.sha256(text.encode()).hexdigest() if text else ""

    def _name(self, job: str) -> str:
        known = self._jobs.get(job)
        return known.name if known is not None else job

    async def greet(
        self, socket: WebSocket, role: Role, job: str, kind: type[NodeJoined | Hello], fence: int, unfit: str = ""
    ) -> NodeJoined | Hello | None:
        """Return the agent's first message, which must be of this `kind`; None if the agent was rejected.

        `unfit`: why an authorized agent is rejected nevertheless; it may try again.
        """
        shown = self._access.proof(socket.headers.get("authorization"), socket.headers.get(NONCE))
        try:
            grants = [grant for grant in self.grants(socket) if grant.allows(role, self._name(job))]
            if not grants:
                raise HTTPException(403, _needed(role, job))
            if unfit:
                self._jobs.tell_once("agents of another job", unfit)
                raise HTTPException(503, unfit)
        except HTTPException as error:
            await socket.send_denial_response(problem(error.status_code, str(error.detail), shown))
            return None
        headers = {FENCE: str(fence), **shown}
        await socket.accept(headers=[(name.encode(), value.encode()) for name, value in headers.items()])
        message: Message | None = None
        why = ""
        try:
            with suppress(TimeoutError, KeyError):
                message = decode(await asyncio.wait_for(socket.receive_text(), HELLO))
        except NodeTooLong as error:  # its agent may be of an earlier version and have parts that train: it stays, and connects again
            node = plain(next((grant.node for grant in grants if grant.node), error.node))[:100]
            self._jobs.tell_once(f"labels of {node}", service_jobs.NODE_KEPT_WAITING(node=node, reason=str(error)))
            await socket.close(TRY_LATER, shortened(str(error)))
            return None
        except BadMessage as error:
            why = f": {plain(str(error))}"
        except WebSocketDisconnect:
            return None
        if not isinstance(message, kind):
            await socket.close(POLICY_VIOLATION, shortened(http_requests.FIRST_MESSAGE(type=kind.__name__, reason=why)))
            return None
        if not any(grant.serves(message.node) for grant in grants):
            await self._not_its_node(socket, message.node, next((grant.node for grant in grants if grant.node), ""))
            return None
        return message

    async def _not_its_node(self, socket: WebSocket, node: str, own: str) -> None:
        """Reject an agent whose token or certificate is for another node (`own`), or names none."""
        why = http_requests.ANOTHER_NODE(own=own, node=node) if own else http_requests.NODE_UNNAMED(node=node)
        self._jobs.tell_once(f"agent of {own}", service_jobs.AGENT_SENT_AWAY(node=plain(node)[:100], reason=why[:300]))
        await socket.close(POLICY_VIOLATION, shortened(why))
