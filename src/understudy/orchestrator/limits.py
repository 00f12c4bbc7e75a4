"""Limits for incoming data: the size of a request, the request rate of an address, the message rate of an agent.

A request that is too long or too early is rejected with a problem. An agent is only read more slowly, so that its messages wait on its own
host.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Hashable

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy.links.messages import LIMIT
from understudy.messages import http_requests
from understudy.orchestrator.problems import problem

BODY = 4 * LIMIT  # bytes of a request: a submitted job with its environment
REQUESTS, REQUESTS_AT_ONCE = 200.0, 1000.0  # of one address: per second, and at once after a while of rest
MESSAGES, MESSAGES_AT_ONCE = 1000.0, 5000.0  # of one agent; a node with 8 workers sends about 3 per second
ADDRESSES = 10_000  # that are remembered


class Bucket:
    """A token bucket: `take` returns the seconds to wait until `count` more are allowed, 0 if they are allowed now."""

    def __init__(self, rate: float, most: float) -> None:
        self._rate = rate
        self._most = self._left = most
        self._since = 0.0

    def take(self, now: float, count: float = 1.0) -> float:
        """`count`: at most the bucket's `most`."""
        self._left = min(self._most, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < count:
            return (count - self._left) / self._rate
        self._left -= count
        return 0.0


class Buckets:
    """One bucket for each client. If there are too many, those that were unused for the longest time are dropped."""

    def __init__(self, rate: float, most: float) -> None:
        self._rate, self._most = rate, most
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def of(self, who: Hashable) -> Bucket:
        bucket = self._buckets.pop(who, None) or Bucket(self._rate, self._most)
        self._buckets[who] = bucket  # the latest is the last
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return bucket


class Pace:
    """Limit the rate of one agent's messages."""

    def __init__(self, rate: float = MESSAGES, most: float = MESSAGES_AT_ONCE) -> None:
        self._bucket = Bucket(rate, most)

    async def wait(self) -> None:
        """Wait before each message is handled; the next frame is not read before."""
        seconds = self._bucket.take(asyncio.get_running_loop().time())
        if seconds > 0:
            await asyncio.sleep(seconds)
            self._bucket.take(asyncio.get_running_loop().time())


class Limits:
    """ASGI middleware, for HTTP requests only."""

    def __init__(self, app: ASGIApp, rate: float = REQUESTS, most: float = REQUESTS_AT_ONCE) -> None:
        self._app = app
        self._rate = rate
        self._buckets = Buckets(rate, most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope["client"] else ""
        seconds = self._buckets.of(address).take(asyncio.get_running_loop().time())
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if seconds > 0:
            again = {"Retry-After": str(math.ceil(seconds))}
            await problem(429, http_requests.TOO_MANY_REQUESTS(rate=self._rate), again)(scope, receive, send)
        elif length.isdigit() and int(length) > BODY:
            await problem(413, _TOO_LONG, {"Connection": "close"})(scope, receive, send)
        else:
            await self._app(scope, _counted(receive), send)


_TOO_LONG = http_requests.TOO_LONG(most=BODY)


def _counted(receive: Receive) -> Receive:
    """Count the bytes of a body that arrives in pieces without a known length."""
    total = 0

    async def receive_counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > BODY:
            raise HTTPException(413, _TOO_LONG)
        return message

    return receive_counted
