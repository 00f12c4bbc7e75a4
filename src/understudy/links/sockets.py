"""How one of our processes connects to another over the network: a WebSocket, with the secret and TLS of both ends."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from websockets.asyncio.client import connect


@dataclass(frozen=True)
class SocketLimits:
    """In seconds, and bytes of a frame."""

    open: float
    ping: float  # between two pings
    pong: float  # without an answer to one, after which the connection counts as closed
    close: float
    largest: int


def dial(
    url: str, path: str, token: str, tls: ssl.SSLContext | None, limits: SocketLimits, headers: Mapping[str, str] | None = None
) -> connect:
    """To be entered with `async with`, which raises what `websockets.connect` does. `url`: http or https; `tls` counts for the latter."""
    return connect(
        url.replace("http", "ws", 1).rstrip("/") + path,
        additional_headers={"Authorization": f"Bearer {token}", **(headers or {})},
        ssl=tls if url.startswith("https") else None,
        proxy=None,  # a proxy in the environment is for the world outside the cluster
        compression=None,
        open_timeout=limits.open,
        close_timeout=limits.close,
        ping_interval=limits.ping,
        ping_timeout=limits.pong,
        max_size=limits.largest,
    )
