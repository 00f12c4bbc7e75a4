"""The agents' WebSockets: one for each part of a job, and, of a service, one for each node.

They are not in the OpenAPI description, and are only for Understudy's own agents and orchestrators: their messages may change with any
version. A message of an agent is a text frame of at most 1 MiB, `{"type": ..., ...fields}`. The first one must come within 10 s.

Before the connection is made, a wrong token is answered with 401 and an unknown job with 404. If the connection is accepted, the header
`understudy-fence` of the answer names the lease (or term) with which the orchestrator leads.

Close codes: 1008: the first message was not the expected one; 1009: a message was too long; 1013: the agent may try again later; 4000:
another connection has replaced this one; 4001: the node was silent for too long; 4002: the record of the job cannot be read.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from fastapi import FastAPI, WebSocket, WebSocketDisconnect

from understudy.core.events import NodeJoined
from understudy.links.messages import POSITION, Hello
from understudy.messages import http_requests
from understudy.orchestrator.agent_link import ASIDE, AgentLink, Close, shortened
from understudy.orchestrator.auth import Auth
from understudy.orchestrator.chain import Position
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.limits import Pace
from understudy.orchestrator.problems import problem
from understudy.orchestrator.security import Role


class Peer(Protocol):
    """The object that serves an agent's WebSocket."""

    def receive(self, link: AgentLink, text: str) -> None: ...

    def detach(self, link: AgentLink) -> None: ...


def add_parts(app: FastAPI, jobs: Jobs, cluster: Cluster | None, auth: Auth, fence: int) -> None:
    @app.websocket("/v1/jobs/{job}/agent")
    async def part(socket: WebSocket, job: str) -> None:
        """The agent of a node of a job. Its first message is `NodeJoined`; then it sends events and receives commands. Token: the job's."""
        known = jobs.get(job)
        if known is None:  # an agent tries again after the first of these answers, and gives up after the second
            if cluster is not None:
                cluster.find_orphan(job, socket.headers.get("authorization"))
            aside = jobs.why_aside(job)
            answer = problem(404, http_requests.NO_SUCH_JOB(job=job)) if aside is None else problem(503, http_requests.PART_ASIDE())
            await socket.send_denial_response(answer)
            return
        shown = Position.read(socket.headers.get(POSITION))
        other = shown is not None and known.service.is_of_another(shown)
        unfit = http_requests.OF_ANOTHER_JOB(host=socket.client.host if socket.client is not None else "") if other else ""
        joined = await auth.greet(socket, Role.WORKER, job, NodeJoined, fence, unfit)
        if not isinstance(joined, NodeJoined):
            return
        if jobs.admit(known, joined, shown):
            await _serve(socket, known.service, known.service.attach(joined, str(shown or "")))
        else:
            await socket.close(ASIDE, http_requests.PART_ASIDE())


def add_nodes(app: FastAPI, cluster: Cluster, auth: Auth, fence: int) -> None:
    @app.websocket("/v1/agent")
    async def agent(socket: WebSocket) -> None:
        """The agent of a node of a service. Its first message is `Hello`, which it repeats as its heartbeat. Token: the service's."""
        hello = await auth.greet(socket, Role.AGENT, "", Hello, fence)
        if isinstance(hello, Hello):
            await _serve(socket, cluster, cluster.attach(hello))


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
        await socket.close(item.code, shortened(item.reason))
    except (WebSocketDisconnect, RuntimeError):
        pass  # the receiving side sees it too, and detaches
