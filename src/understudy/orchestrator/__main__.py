"""`python -m understudy.orchestrator`: serve one job until it ends; the exit code is the job's.

Writes `RUN_DIR/orchestrator.json` ({"url", "pid"}) once it serves. Started again on the same run directory it replays
the journal and goes on; give it the same port, so that the agents find it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from understudy.core.events import StopAsked
from understudy.core.machine import Machine
from understudy.links import messages
from understudy.orchestrator import journal
from understudy.orchestrator.api import create_app
from understudy.orchestrator.security import load_or_create_token
from understudy.orchestrator.service import Service, to_stderr
from understudy.orchestrator.settings import Settings

PING = 5.0  # seconds between two pings on an agent's connection
PONG = 15.0  # seconds without an answer after which it counts as gone
_PR_SET_PDEATHSIG = 1


def main(argv: list[str] | None = None) -> int:
    arguments = _parse(argv)
    run_dir: Path = arguments.run_dir
    run_dir.mkdir(parents=True, exist_ok=True)
    if arguments.die_with_parent:
        _die_with_parent()
    try:
        settings = _settings(run_dir, arguments.spec_json)
        listener = _listen(arguments.host, arguments.port)
    except (ValueError, OSError) as error:
        to_stderr(str(error))
        return 2
    return asyncio.run(_serve(arguments, run_dir, settings, listener))


async def _serve(arguments: argparse.Namespace, run_dir: Path, settings: Settings, listener: socket.socket) -> int:
    messages.prepare()
    loop = asyncio.get_running_loop()
    known = journal.read(run_dir)
    machine = Machine(settings.spec, settings.timeouts)

    writer = journal.Journal(run_dir, settings, to_stderr)
    service = Service(machine, writer)
    if known is not None:
        service.resume(known[1])
        service.pages.update(known[2])
    writer.start()

    config = uvicorn.Config(
        create_app(service, load_or_create_token(run_dir)),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws_max_size=messages.LIMIT,
        ws_ping_interval=PING,
        ws_ping_timeout=PONG,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=2,
        ssl_certfile=arguments.tls_cert,
        ssl_keyfile=arguments.tls_key,
    )
    scheme = "https" if arguments.tls_cert else "http"
    server = _Server(config, lambda: _announce(run_dir, scheme, listener))
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        loop.add_signal_handler(number, service.submit, StopAsked(number.name, code))

    serving = asyncio.create_task(server.serve(sockets=[listener]))
    running = asyncio.create_task(service.run())
    await asyncio.wait({serving, running}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():  # the server could not start or broke down: without it there is no control
        await serving
        to_stderr("the orchestrator's server has stopped")
        return 1
    server.should_exit = True
    await serving
    await asyncio.to_thread(writer.close)
    return running.result()


class _Server(uvicorn.Server):
    """Says when it serves, and leaves the signals to the service: they end the job, not only the server."""

    def __init__(self, config: uvicorn.Config, serving: Callable[[], None]) -> None:
        super().__init__(config)
        self._serving = serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._serving()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _announce(run_dir: Path, scheme: str, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    shown = f"[{host}]" if ":" in host else host
    temporary = run_dir / f".orchestrator.{os.getpid()}"
    temporary.write_text(json.dumps({"url": f"{scheme}://{shown}:{port}", "pid": os.getpid()}) + "\n")
    temporary.rename(run_dir / "orchestrator.json")


def _settings(run_dir: Path, given: str | None) -> Settings:
    """What the journal says if there is one, else what the command line says."""
    known = journal.read(run_dir)
    if known is not None:
        return known[0]
    if given is None:
        raise ValueError(f"--spec-json is needed: there is no journal in {run_dir}")
    return Settings.from_json(given if given.lstrip().startswith("{") else Path(given).read_text())


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # Accepted connections inherit this. asyncio would set it only on sockets made with an explicit protocol number, and
    # without it the second of two small frames waits 40 ms for the first one's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _die_with_parent() -> None:
    """SIGTERM when whoever started us is gone, so that a killed command line leaves nothing behind."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m understudy.orchestrator", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--spec-json", help='{"spec": ..., "timeouts": ...} or the path of a file with it')
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0: the system chooses")
    parser.add_argument("--tls-cert", help="path of the certificate chain; then https and wss only")
    parser.add_argument("--tls-key", help="path of its key")
    parser.add_argument("--die-with-parent", action="store_true", help="end the job when the starting process is gone")
    arguments = parser.parse_args(argv)
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        parser.error("--tls-cert and --tls-key belong together")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
