"""Connect one of our processes to another over the network: by a WebSocket, with the secret and TLS of both ends."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from websockets.asyncio.client import connect


@dataclass(frozen=True)
class SocketLimits:
    """Limits in seconds, and in bytes of a frame."""

    open: float
    ping: float  # between two pings
    pong: float  # without an answer to one, after which the connection counts as closed
    close: float
    largest: int


def dial(
    url: str, path: str, token: str, tls: ssl.SSLContext | None, limits: SocketLimits, headers: Mapping[str, str] | None = None
) -> connect:
    """Return a connection to enter with `async with`, which raises the errors of `websockets.connect`. `url`: http or https; `tls` is
    used for https.
    """
    return connect(
        url.replace("http", "ws", 1).rstrip("/") + path,
        additional_headers={"Authorization": f"Bearer {token}", **(headers or {})},
        ssl=tls if url.startswith("https") else None,
        proxy=None,  # a proxy in the environment is for hosts outside the cluster
        compression=None,
        open_timeout=limits.open,
        close_timeout=limits.close,
        ping_interval=limits.ping,
        ping_timeout=limits.pong,
        max_size=limits.largest,
    )
