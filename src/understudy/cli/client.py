"""Call the orchestrator's HTTP API from the command line."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from understudy.cli.run_directory import RunDirectory
from understudy.common.tls import trusting
from understudy.messages import asking

# A host that has vanished is noticed after some seconds, even while no answer is awaited from it.
KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


PROBLEM = "application/problem+json"  # media type of an orchestrator's errors; an ingress without a backend sends others
PATIENCE = 60.0  # seconds


class NoAnswer(Exception):
    """No orchestrator answers there: it is not running, not reachable, or another server answers in its place."""


class Denied(Exception):
    """The orchestrator has refused the request; the text is its reason."""


@dataclass(frozen=True)
class Server:
    """An orchestrator, and the credentials for it."""

    url: str  # or several, separated by commas: the one that leads answers
    token: str = ""
    certificate: str = ""

    @staticmethod
    def of(run: RunDirectory) -> Server:
        """Return the server of this run. Raises `NoAnswer`."""
        url = run.orchestrator()
        if url is None:
            raise NoAnswer(asking.ADDRESS_UNKNOWN())
        return Server(url, run.token(), run.job().get("certificate", ""))

    def call(self, method: str, path: str, body: Any = None, limit: float = 5.0) -> Any:
        """Send one request and return its answer, as JSON. Raises `NoAnswer` or `Denied`."""
        with self._client(limit) as client:
            answer = client.request(method, path, json=body)
            _check(answer)
            try:
                return answer.json()
            except ValueError as error:  # another server's page
                raise NoAnswer(asking.NO_ANSWER(url=str(answer.url), reason=asking.OF_ANOTHER(status=answer.status_code))) from error

    def _leading(self) -> str:
        """Return the URL of the one of several that leads. Raises `NoAnswer`."""
        first, *others = [part.strip().rstrip("/") for part in self.url.split(",")]
        for url in (first, *others) if others else ():
            with suppress(httpx.HTTPError, OSError):
                verify: ssl.SSLContext | bool = trusting(self.certificate) or True
                httpx.get(f"{url}/v1/health", timeout=2.0, trust_env=False, verify=verify).raise_for_status()
                return url
        if others:
            raise NoAnswer(asking.NONE_LEADS(urls=self.url))
        return first

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the body of an answer as it arrives, after an empty block that shows that there is an answer. Raises `NoAnswer` or
        `Denied`, also in the middle.
        """
        with self._client(None) as client, client.stream("GET", path) as answer:
            if not answer.is_success:
                answer.read()
            _check(answer)
            yield b""
            yield from answer.iter_raw()

    @contextmanager
    def _client(self, limit: float | None) -> Iterator[httpx.Client]:
        verify: ssl.SSLContext | bool = trusting(self.certificate) or True
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            # Not through a proxy: that is for hosts outside the cluster.
            with httpx.Client(
                base_url=self._leading(),
                timeout=httpx.Timeout(limit, connect=5.0),
                trust_env=False,
                transport=httpx.HTTPTransport(verify=verify, socket_options=KEEPALIVE),
                headers=headers,
            ) as client:
                yield client
        except (httpx.TransportError, httpx.InvalidURL, OSError) as error:
            raise NoAnswer(asking.NO_ANSWER(url=self.url, reason=str(error))) from error


class Patience:
    """Give up when no orchestrator has answered for `PATIENCE`. For commands that follow a job."""

    def __init__(self) -> None:
        self._away_since: float | None = None

    def answered(self) -> None:
        self._away_since = None

    def over(self) -> bool:
        """Return whether to give up. Call it after each attempt without an answer."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        return now - self._away_since > PATIENCE


def of_job(job: str, what: str) -> str:
    """Return the path of a job's resource."""
    return f"/v1/jobs/{quote(job, safe='')}/{what}"


def _check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    with suppress(ValueError, KeyError, TypeError):
        if answer.headers.get("Content-Type", "").startswith(PROBLEM):
            raise Denied(str(answer.json()["detail"]))
    if answer.status_code == 500:
        raise Denied(answer.text)  # an error inside the orchestrator
    raise NoAnswer(asking.NO_ANSWER(url=str(answer.url), reason=asking.OF_ANOTHER(status=answer.status_code)))
