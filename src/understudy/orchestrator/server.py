"""The HTTP server of the orchestrator: its socket, its limits, its certificates.

A folder with `tls.crt`, `tls.key` and `ca.crt` (the layout of a Kubernetes TLS secret) makes TLS mutual: clients present a certificate of
that authority with their rights (`security.py`). It reaches the app as `state.certificate` of each request.
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

PING = 15.0  # seconds between two pings on an agent's connection; the heartbeats detect a loss earlier
PONG = 15.0  # seconds without an answer after which a connection counts as lost


@dataclass(frozen=True)
class Certificates:
    """PEM files. `authority`: of the clients' certificates; empty: clients need none."""

    chain: str
    key: str
    authority: str = ""

    @staticmethod
    def of(folder: Path) -> Certificates:
        """Return the files of a folder. Raises `ValueError` if one is missing."""
        for name in ("tls.crt", "tls.key", "ca.crt"):
            if not (folder / name).is_file():
                raise ValueError(orchestrators.CERTIFICATE_FOLDER_INCOMPLETE(folder=folder, file=name))
        return Certificates(str(folder / "tls.crt"), str(folder / "tls.key"), str(folder / "ca.crt"))

    def options(self, must_show: bool) -> dict[str, Any]:
        """Return uvicorn's options. `must_show`: a client without a certificate cannot connect."""
        options: dict[str, Any] = {"ssl_certfile": self.chain, "ssl_keyfile": self.key}
        if self.authority:
            options |= {"ssl_ca_certs": self.authority, "ssl_cert_reqs": ssl.CERT_REQUIRED if must_show else ssl.CERT_OPTIONAL}
        return options


class _Protocol(H11Protocol):
    """Passes the client's certificate of a connection to the app."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "certificate": transport.get_extra_info("peercert") or None}


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a log record is about a fault. A rejected handshake is none, although uvicorn (0.54) logs the app's answer as one."""
    return "without completing handshake" not in record.getMessage()


class Server(uvicorn.Server):
    """Reports when it serves, and leaves signals to the service: they end the job, not only the server."""

    def __init__(
        self,
        app: Any,
        certificates: Certificates | None,
        must_show: bool,
        serving: Callable[[], None],
        longest: int = messages.LIMIT,
    ) -> None:
        """Create the server. `longest`: bytes of a WebSocket's frame."""
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
    """Return a listening socket. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # Accepted connections inherit this. asyncio would set it only on sockets made with an explicit protocol number, and
    # without it the second of two small frames waits 40 ms for the first one's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def announce(folder: Path, scheme: str, listener: socket.socket, *, tell: bool) -> None:
    """Write `FOLDER/orchestrator.json`."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    shown = f"[{host}]" if ":" in host else host
    announce_all(folder, [f"{scheme}://{shown}:{port}"])
    if tell:
        say(orchestrators.SERVING(url=f"{scheme}://{shown}:{port}"))


def announce_all(folder: Path, urls: Sequence[str]) -> None:
    """Write the file with the addresses of all orchestrators, one of which leads."""
    temporary, place = folder / f".orchestrator.{os.getpid()}", folder / ORCHESTRATOR
    try:
        temporary.write_text(json.dumps({"url": ",".join(urls), "pid": os.getpid()}) + "\n")
        temporary.rename(place)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not place.exists():
            raise
        # A full disk must not end a job. A process that is restarted on the same port is at the address in the previous file.
        say(orchestrators.ADDRESS_UNWRITTEN(path=place, reason=error.strerror))
