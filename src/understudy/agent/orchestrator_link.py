"""The agent's connection to the orchestrator: a WebSocket that reconnects whenever it is lost.

Training never waits for it. While the orchestrator is not connected, events are kept. After each connect the agent introduces itself,
repeats what it knows of its workers (`resync_events`), and then sends the kept events. The orchestrator recognizes repeats. The wait has no
limit here; `away` returns how long it lasts. Evidence of detectors is not kept: the agent repeats evidence that is still valid.

Only the orchestrator itself may reject an agent whose workers train, or that it has admitted before: such a refusal counts only with the
proof that it knows the agent's token (`links.proof`). Another process may listen at its address while it is away.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.http11 import Response

from understudy.common.backoff import Backoff
from understudy.common.bounds import plain
from understudy.core import events
from understudy.links import messages, proof
from understudy.links.sockets import SocketLimits, dial
from understudy.messages import agents

FIRST_RETRY, LAST_RETRY = 0.05, 1.0  # seconds
ALONE = SocketLimits(open=5.0, ping=2.5, pong=5.0, close=1.0, largest=4 * messages.LIMIT)
ONE_OF_SEVERAL = replace(ALONE, open=1.5, ping=1.0, pong=2.0)  # if there are other orchestrators to try
TELL_AFTER = 5.0  # seconds without a connection before the user is informed
MOST_LINES = 4 << 20  # characters that wait for the orchestrator
MOST_AT_ONCE = 1 << 16
MOST_DETAIL = 500  # characters of the reason for a refusal
_REFUSALS = {401, 403, 404, 409}
_REFUSED_CLOSE = {1008, 4401, 4403, 4409}
_ASIDE = 4002


Sent = events.Event | messages.Seen | messages.NodeMessage


class Refused(Exception):
    """The orchestrator rejects this agent: trying again would not help."""


class OrchestratorLink:
    """The connection. `address` returns the orchestrator's URL, or None while it is unknown; `path` is that of the WebSocket."""

    def __init__(
        self,
        address: Callable[[], str | None],
        path: str,
        token: str,
        tls: ssl.SSLContext | None,
        resync_events: Callable[[], list[Sent]],
        on_command: Callable[[messages.Message], None],
        say: Callable[[str], None],
        serves: Callable[[], bool],
        shows: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """Create the link. `serves`: whether workers run here that an end of this agent would end. `shows`: further headers of each request
        to connect.
        """
        self._address = address  # one URL, or several separated by commas; one of them leads
        self._turn = self._count = 0
        self._path = path
        self._token = token
        self._tls = tls
        self._resync_events = resync_events
        self._on_command = on_command
        self._say = say
        self._serves = serves
        self._shows = shows
        self._admitted = False  # by an orchestrator, in this process
        self._led = False  # something was received over this connection
        self._known = False  # one has proven that it knows the token, so the others do, too
        self._kept: deque[Sent] = deque()
        self._pages: messages.Pages | None = None
        self._ahead = False
        self._lines: deque[str] = deque()
        self._waiting = 0  # characters in them
        self._dropped = 0  # characters that were dropped
        self._something = asyncio.Event()
        self.over = False  # the job is ending: a missing answer is not reported
        self._fence = 0  # the highest of any orchestrator
        self._away_since: float | None = time.monotonic()  # None: connected

    def away(self) -> float:
        """Return the seconds without a connection; 0 while there is one."""
        return 0.0 if self._away_since is None else time.monotonic() - self._away_since

    def send(self, event: Sent) -> None:
        if self._away_since is not None and isinstance(event, messages.Seen):
            return
        self._kept.append(event)
        self._something.set()

    def send_pages(self, pages: messages.Pages, ahead: bool) -> None:
        """Send pages. Only the newest ones matter: unsent ones are replaced.

        `ahead`: before the events that wait, one of which may end the job, and with it this connection.
        """
        self._pages = pages
        self._ahead |= ahead
        self._something.set()

    def send_lines(self, text: str) -> None:
        """Queue lines of output, up to a limit; then the oldest are dropped, and their number is reported."""
        self._lines.append(text)
        self._waiting += len(text)
        while self._waiting > MOST_LINES:
            lost = len(self._lines.popleft())
            self._waiting -= lost
            self._dropped += lost
        self._something.set()

    async def run(self) -> None:
        """Connect and send until cancelled. Raises `Refused`."""
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        reported = False
        while True:
            address, others, nonce = self._next(), self._others(), proof.nonce()
            trouble, proven, away_since, tried = "it has not started yet", False, self._away_since, time.monotonic()
            if address is not None:
                try:
                    limits = ONE_OF_SEVERAL if others else ALONE
                    async with dial(address, self._path, self._token, self._tls, limits, {**self._shows(), proof.NONCE: nonce}) as socket:
                        proven = self._is_proven(nonce, socket.response)
                        if self._known and not proven:
                            raise InvalidHandshake(agents.NOT_PROVEN())
                        self._known |= proven
                        self._admitted |= proven
                        if reported:
                            self._say(agents.CONNECTED())
                        fence = _fence_of(socket)
                        if fence < self._fence:
                            raise InvalidHandshake(agents.LED_ONCE(old=fence, new=self._fence))
                        self._fence = fence
                        reported, self._led, self._away_since = False, False, None
                        try:
                            await self._talk(socket)
                        finally:
                            self._away_since = time.monotonic()
                        trouble = "it closed the connection"
                except InvalidStatus as error:
                    proven = self._is_proven(nonce, error.response)
                    trouble = f"HTTP status {error.response.status_code}" + (_detail(error.response) if proven else "")
                    if error.response.status_code in _REFUSALS and not others and self._may_refuse(proven):
                        raise Refused(agents.REFUSED(url=address, reason=trouble)) from error
                except InvalidURI as error:  # its own URL, or one to which it was redirected
                    if self._may_refuse(False):
                        raise Refused(agents.NOT_AN_ADDRESS(url=address)) from error
                    trouble = str(error)
                except ssl.SSLCertVerificationError as error:
                    if self._may_refuse(False):
                        raise Refused(agents.UNTRUSTED(url=address, reason=error.verify_message)) from error
                    trouble = error.verify_message
                except ConnectionClosed as error:
                    if error.rcvd is not None and error.rcvd.code in _REFUSED_CLOSE:
                        if self._may_refuse(proven):
                            raise Refused(agents.NODE_REFUSED(url=address, reason=error.rcvd.reason or error.rcvd.code)) from error
                        self._away_since = away_since  # no orchestrator leads this node
                    elif error.rcvd is not None and error.rcvd.code == _ASIDE and not self._led:
                        self._away_since = away_since  # the same if the job is put aside as soon as this agent has connected
                    trouble = "it closed the connection"
                except (OSError, InvalidHandshake, TimeoutError) as error:
                    trouble = str(error) or type(error).__name__
            if self._away_since != away_since and time.monotonic() - tried > LAST_RETRY:
                backoff.reset()  # it was connected
            if not reported and not self.over and self.away() > TELL_AFTER:
                reported = True
                self._say(agents.DISCONNECTED(reason=trouble))
            if self._turn % max(1, self._count) == 0:  # all have been tried
                await asyncio.sleep(backoff.delay())

    def _is_proven(self, nonce: str, response: Response | None) -> bool:
        if response is None:
            return False
        if not self._token:  # the orchestrator has presented a certificate
            return self._tls is not None and response.status_code not in (401, 404)
        given = response.headers.get_all(proof.PROOF)
        return len(given) == 1 and proof.is_proven(self._token, nonce, given[0])

    def _may_refuse(self, proven: bool) -> bool:
        return proven or not (self._admitted or self._serves())

    def _next(self) -> str | None:
        """Return the address to try now: each in turn."""
        addresses = [part for part in (self._address() or "").split(",") if part]
        self._turn, self._count = self._turn + 1, len(addresses)
        return addresses[self._turn % len(addresses)].strip() if addresses else None

    def _others(self) -> bool:
        """Return whether there is another address to try: a refusal may come from an old leader."""
        return "," in (self._address() or "")

    async def _talk(self, socket: ClientConnection) -> None:
        # Kept events that are repeated anyway are sent once, in the repeat, where they are in the right order.
        repeated = self._resync_events()
        kept = [event for event in self._kept if event not in repeated and not isinstance(event, messages.Seen)]
        self._kept = deque([*repeated, *kept])
        self._something.set()
        sending = asyncio.create_task(self._send_all(socket))
        receiving = asyncio.create_task(self._receive_all(socket))
        try:
            done, _ = await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await socket.close()  # an orderly shutdown: the orchestrator counts the agents that have gone
            raise
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
        for task in done:
            task.result()

    async def _send_all(self, socket: ClientConnection) -> None:
        await socket.send(messages.encode(self._kept[0]))  # the introduction is a separate frame
        self._kept.popleft()
        while True:
            await self._something.wait()
            self._something.clear()
            if self._ahead:
                await self._send_pages(socket)
            while self._kept:
                frame, count = next(messages.pack(map(messages.encode, self._kept)))
                await socket.send(frame)
                for _ in range(count):
                    self._kept.popleft()
            while self._lines:
                if self._dropped:
                    lost, self._dropped = self._dropped, 0
                    text = f"understudy: {agents.OUTPUT_DROPPED(count=lost)}\n"
                    await socket.send(messages.encode(messages.Lines(text)))
                text = self._lines[0]
                for start in range(0, len(text), MOST_AT_ONCE):
                    await socket.send(messages.encode(messages.Lines(text[start : start + MOST_AT_ONCE])))
                if self._lines and self._lines[0] is text:  # otherwise it was dropped in the meantime
                    self._waiting -= len(self._lines.popleft())
            await self._send_pages(socket)

    async def _send_pages(self, socket: ClientConnection) -> None:
        pages, self._pages, self._ahead = self._pages, None, False
        if pages is not None:
            await socket.send(messages.encode(pages))

    async def _receive_all(self, socket: ClientConnection) -> None:
        async for frame in socket:
            for line in frame.split("\n") if isinstance(frame, str) else [frame]:
                try:
                    received = messages.unfold(messages.decode(line))
                except messages.BadMessage as error:
                    self._say(agents.NOT_A_MESSAGE(reason=str(error)))
                    continue
                self._admitted = self._led = True
                for message in received:
                    self._on_command(message)


def _detail(response: Response) -> str:
    """Return the detail of an answer, in addition to its status, in printable form; "" if it has none."""
    try:
        detail = json.loads(response.body or b"")["detail"]
    except (ValueError, LookupError, TypeError):
        return ""
    return f": {plain(detail)[:MOST_DETAIL]}" if isinstance(detail, str) else ""


def _fence_of(socket: ClientConnection) -> int:
    text = socket.response.headers.get(messages.FENCE, "0") if socket.response is not None else "0"
    return int(text) if text.isdecimal() else 0
