"""A real HTTP server that answers as a Prometheus server or an exporter, well or badly, and what tests of rules share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from understudy.detectors.base import Evidence, JobView, Severity, Subject
from understudy.detectors.configuration import read
from understudy.detectors.prometheus import Prometheus, PrometheusSettings

NOW = 1_800_000_000.0
EVERY = 15.0
NODES = {"w0": "node0", "w1": "node1"}


class Fake(ThreadingHTTPServer):
    """Answers one page, or something else entirely."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body = b""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.raw: bytes | None = None  # instead of an answer
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.held = threading.Event()  # set: answers end
        self.held.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Who asked has gone before the end of the answer, as many here do."""

    def vector(self, *series: tuple[dict[str, str], str]) -> None:
        result = [{"metric": labels, "value": [NOW, value]} for labels, value in series]
        self.body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Fake

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers.items())))
        if self.server.raw is not None:
            self.wfile.write(self.server.raw)
            self.wfile.flush()
        else:
            self.send_response(self.server.status)
            for name, value in self.server.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(self.server.body)
        self.server.held.wait(60)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(made: Fake) -> Iterator[Fake]:
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.held.set()
        made.shutdown()
        thread.join()
        made.server_close()


def rule(**more: Any) -> dict[str, Any]:
    return {"name": "hot", "compare": ">", "number": 80, "kind": "too-hot", **more}


def asking(fake: Fake, *rules: dict[str, Any], nodes: dict[str, str] | None = None, **server: Any) -> Prometheus:
    found = {"every": EVERY, "server": {"url": fake.url, **server}, "rules": rules or [rule(query="temperature")], "nodes": nodes or {}}
    return Prometheus(read(PrometheusSettings, found))


def reading(fake: Fake, *rules: dict[str, Any], **exporter: Any) -> Prometheus:
    return Prometheus(read(PrometheusSettings, {"exporters": [{"url": f"{fake.url}/metrics", **exporter}], "rules": rules}))


def job(after: float = 0.0, nodes: dict[str, str] = NODES) -> JobView:
    return JobView(NOW + after, {0: "w0", 1: "w1"}, (), nodes)


def only(found: list[Evidence]) -> Evidence:
    assert len(found) == 1, found
    return found[0]


def note(found: list[Evidence], kind: str) -> str:
    one = only(found)
    assert (one.detector, one.subject, one.name, one.severity, one.part) == ("prometheus", Subject.NODE, "", Severity.NOTE, "")
    assert one.kind == kind
    assert one.detail.isprintable() and len(one.detail) < 1000
    return one.detail
