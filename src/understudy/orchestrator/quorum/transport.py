"""The members' connections: each member connects to each other one and sends its messages there. JSON, in frames with a limit.

A WebSocket on the port of `--rdzv-endpoint`, with the job's secret itself (tokens made from it are not accepted) and the agents' TLS.
Messages that cannot be sent now are dropped, as Raft allows; a lost connection is retried forever.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from pydantic import TypeAdapter
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosedError, InvalidHandshake, InvalidStatus, WebSocketException

from understudy.links.messages import LIMIT
from understudy.links.sockets import SocketLimits, dial
from understudy.messages import http_requests, quorums
from understudy.orchestrator.agent_link import POLICY_VIOLATION
from understudy.orchestrator.limits import Limits
from understudy.orchestrator.problems import problem
from understudy.orchestrator.quorum.memory import Known
from understudy.orchestrator.quorum.raft import AppendEntries, AppendReply, RaftMessage, RequestVote, Vote
from understudy.orchestrator.quorum.roster import MemberHello
from understudy.orchestrator.security import Access, Unknown

PATH = "/v1/quorum"
LONGEST = 4 * LIMIT  # bytes of a frame: one event of `LIMIT` characters, all of them escaped, and its surroundings
WAITING = 64  # messages for one member that wait to be sent
AGAIN = 0.3  # seconds between two attempts to connect
SOCKET = SocketLimits(open=5.0, ping=1.0, pong=2.0, close=0.2, largest=LONGEST)
_KINDS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind) for kind in (MemberHello, RequestVote, Vote, AppendEntries, AppendReply, Known)
}
_ENCODER = json.JSONEncoder(separators=(",", ":"), default=vars)


def encode(message: RaftMessage | Known | MemberHello) -> str:
    return _ENCODER.encode([type(message).__name__, message])


def decode(frame: str | bytes) -> RaftMessage | Known | MemberHello:
    """Decode a frame. Raises `ValueError` for anything else."""
    try:
        name, fields = json.loads(frame)
        message: RaftMessage | Known | MemberHello = _KINDS[name].validate_python(fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(quorums.NOT_OF_MEMBERS(frame=repr(frame[:100]))) from error
    return message


class Member(Protocol):
    """The member that a connection serves."""

    def hello(self, to: int) -> MemberHello: ...

    def greeted(self, hello: MemberHello) -> None: ...

    def accepts(self, hello: MemberHello) -> bool:
        """Return whether the sender of this hello is to be heard."""

    def receive(self, sender: int, message: RaftMessage | Known) -> None: ...

    def leading(self) -> str:
        """The address of the leader; empty if none is known."""


class Dial:
    """The outgoing connection to member `number`, at `url`."""

    def __init__(self, number: int, url: str, token: str, tls: ssl.SSLContext | None, member: Member, tell: Callable[[str], None]) -> None:
        self._number = number
        self._url = url
        self._token = token
        self._tls = tls
        self._member = member
        self._tell = tell
        self._reported = ""
        self._outbox: asyncio.Queue[str] | None = None  # None: not connected

    def send(self, message: RaftMessage | Known | MemberHello) -> None:
        if self._outbox is not None:
            with suppress(asyncio.QueueFull):
                self._outbox.put_nowait(encode(message))

    async def run(self) -> None:
        """Connect and send until cancelled."""
        while True:
            try:
                async with dial(self._url, PATH, self._token, self._tls, SOCKET) as socket:
                    await self._talk(socket)
            except InvalidStatus as error:
                self._say_once(quorums.MEMBER_REFUSES(url=self._url, status=error.response.status_code))
            except ssl.SSLCertVerificationError as error:
                self._say_once(quorums.MEMBER_UNTRUSTED(url=self._url, reason=error.verify_message))
            except ConnectionClosedError as error:
                if error.rcvd is not None and error.rcvd.code == POLICY_VIOLATION:
                    self._say_once(quorums.MEMBER_OTHER_VERSION(url=self._url))
            except (OSError, InvalidHandshake, WebSocketException, TimeoutError):
                pass  # it is not available
            except Exception as error:  # any error: the next attempt may succeed, and without it this member would be isolated
                self._say_once(quorums.MEMBER_UNREACHED(url=self._url, error=repr(error)))
            await asyncio.sleep(AGAIN)

    async def _talk(self, socket: ClientConnection) -> None:
        self._outbox = asyncio.Queue(WAITING)
        self.send(self._member.hello(self._number))
        sending = asyncio.create_task(self._send_all(socket, self._outbox))
        try:
            async for frame in socket:
                with suppress(ValueError):
                    message = decode(frame)
                    if isinstance(message, MemberHello) and message.member == self._number:
                        self._member.greeted(message)
                    elif isinstance(message, MemberHello):
                        self._say_once(quorums.MEMBER_NUMBERED_OTHERWISE(url=self._url, there=message.member, here=self._number))
        finally:
            self._outbox = None
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_all(self, socket: ClientConnection, outbox: asyncio.Queue[str]) -> None:
        while True:
            await socket.send(await outbox.get())

    def _say_once(self, text: str) -> None:
        if text != self._reported:
            self._reported = text
            self._tell(text)


class Front:
    """The ASGI app: other members connect at `PATH`; all other clients are redirected to the leader, or served here while this
    one leads.
    """

    def __init__(self, leading: Callable[[], str], access: Access, member: Member | None) -> None:
        """Create the app. `leading`: the URL of another leader, if it is known. `member`: of a quorum."""
        self.app: ASGIApp | None = None  # set while this one leads
        self._leading = leading
        self._member = member
        self._access = access
        self._away = Limits(self._send_away)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == PATH and self._member is not None:
            await self._hear(WebSocket(scope, receive, send), self._member)
        else:
            await (self.app or self._away)(scope, receive, send)

    async def _send_away(self, scope: Scope, receive: Receive, send: Send) -> None:
        leader = self._leading()
        answer = problem(503, http_requests.ASK_LEADER(url=leader) if leader else http_requests.NO_LEADER())
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(answer)
        else:
            await answer(scope, receive, send)

    async def _hear(self, socket: WebSocket, member: Member) -> None:
        """Another orchestrator of the same job. Its first message is `Hello`. Token: the secret of the job itself."""
        try:
            grants = self._access.grants(socket.headers.get("authorization"), None)
        except Unknown as error:
            await socket.send_denial_response(problem(401, str(error), {"WWW-Authenticate": "Bearer"}))
            return
        if not any(grant.role is None for grant in grants):
            await socket.send_denial_response(problem(403, http_requests.SECRET_ITSELF_NEEDED()))
            return
        await socket.accept()
        hello: MemberHello | None = None
        with suppress(WebSocketDisconnect, RuntimeError, KeyError):
            while True:
                try:
                    message = decode(await socket.receive_text())
                except ValueError as error:
                    await socket.close(POLICY_VIOLATION, str(error)[:100])
                    return
                if isinstance(message, MemberHello):
                    hello = message
                    member.greeted(message)
                    await socket.send_text(encode(member.hello(message.member)))
                elif hello is not None and member.accepts(hello):
                    member.receive(hello.member, message)
