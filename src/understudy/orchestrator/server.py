"""The HTTP server of the orchestrator: where it listens, its limits, its certificates.

A folder with `tls.crt`, `tls.key` and `ca.crt` (the layout of a Kubernetes TLS secret) makes TLS mutual: clients show a certificate of
that authority, which says what they may do (`security.py`). It reaches the app as `state.certificate` of each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from understudy.common.console import say
from understudy.common.names import ORCHESTRATOR
from understudy.links import messages
from understudy.messages import orchestrators

PING = 15.0  # seconds between two pings on an agent's connection; the heartbeats tell earlier
PONG = 15.0  # seconds without an answer after which it counts as gone


@dataclass(frozen=True)
class Certificates:
    """PEM files. `authority`: of the clients' certificates; empty: they are not asked for one."""

    chain: str
    key: str
    authority: str = ""

    @staticmethod
    def of(folder: Path) -> Certificates:
        """Raises `ValueError` if a file is missing."""
        for name in ("tls.crt", "tls.key", "ca.crt"):
            if not (folder / name).is_file():
                raise ValueError(orchestrators.CERTIFICATE_FOLDER_INCOMPLETE(folder=folder, file=name))
        return Certificates(str(folder / "tls.crt"), str(folder / "tls.key"), str(folder / "ca.crt"))

    def options(self, must_show: bool) -> dict[str, Any]:
        """For uvicorn. `must_show`: a client without a certificate is not even heard."""
        options: dict[str, Any] = {"ssl_certfile": self.chain, "ssl_keyfile": self.key}
        if self.authority:
            options |= {"ssl_ca_certs": self.authority, "ssl_cert_reqs": ssl.CERT_REQUIRED if must_show else ssl.CERT_OPTIONAL}
        return options


class _Protocol(H11Protocol):
    """Tells the app whose certificate a connection has shown."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "certificate": transport.get_extra_info("peercert") or None}


def _is_fault(record: logging.LogRecord) -> bool:
    """Not to let somebody in is none: uvicorn (0.54) takes an answer of the app's own to a handshake for none."""
    return "without completing handshake" not in record.getMessage()


class Server(uvicorn.Server):
    """Says when it serves, and leaves the signals to the service: they end the job, not only the server."""

    def __init__(
        self,
        app: Any,
        certificates: Certificates | None,
        must_show: bool,
        serving: Callable[[], None],
        longest: int = messages.LIMIT,
    ) -> None:
        """`longest`: bytes of a WebSocket's frame."""
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                log_level="warning",
                access_log=False,
                lifespan="off",
                ws_max_size=longest,
                ws_ping_interval=PING,
                ws_ping_timeout=PONG,
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=2,
                **(certificates.options(must_show) if certificates is not None else {}),
            )
        )
        logging.getLogger("uvicorn.error").addFilter(_is_fault)
        self._serving = serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._serving()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # Accepted connections inherit this. asyncio would set it only on sockets made with an explicit protocol number, and
    # without it the second of two small frames waits 40 ms for the first one's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def announce(folder: Path, scheme: str, listener: socket.socket, *, tell: bool) -> None:
    """Writes `FOLDER/orchestrator.json`."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    shown = f"[{host}]" if ":" in host else host
    announce_all(folder, [f"{scheme}://{shown}:{port}"])
    if tell:
        say(orchestrators.SERVING(url=f"{scheme}://{shown}:{port}"))


def announce_all(folder: Path, urls: Sequence[str]) -> None:
    """The same, with all addresses of which one leads."""
    temporary, place = folder / f".orchestrator.{os.getpid()}", folder / ORCHESTRATOR
    try:
        temporary.write_text(json.dumps({"url": ",".join(urls), "pid": os.getpid()}) + "\n")
        temporary.rename(place)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not place.exists():
            raise
        # A full disk must not end a job. Who is started again on the same port is where the file of the one before says.
        say(orchestrators.ADDRESS_UNWRITTEN(path=place, reason=error.strerror))
