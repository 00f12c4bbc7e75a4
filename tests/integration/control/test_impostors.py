"""What answers in the place of the orchestrator while that is away ends no training, and the orchestrator shows that it is the one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from tests.integration.processes import is_alive, marked, wait_until
from tests.integration.service import TOKEN, Service
from tests.integration.training import LONG, Outcome

from understudy.links import proof
from understudy.orchestrator.security import Access, Role

HELD = 6
RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "2"]


@contextmanager
def ingress(url: str, status: int) -> Iterator[list[str]]:
    """An ingress without a backend at the orchestrator's address. Gives the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if status == 302:  # to a page where people log in
                self.send_response(status)
                self.send_header("Location", "https://login.example/")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.send_error(status)

        def log_message(self, format: str, *given: object) -> None:
            """Nothing."""

    ThreadingHTTPServer.allow_reuse_address = True
    host, _, port = url.removeprefix("http://").rpartition(":")
    with ThreadingHTTPServer((host, int(port)), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [302, 401, 404])
def test_an_ingress_that_refuses_everybody_ends_nothing(tmp_path: Path, undisturbed_spread: Callable[[int], Outcome], status: int) -> None:
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.start_nodes("ab", 2)
        job = service.run("job", RANKS, "spread.py", HELD=f"1:{HELD}", WAIT="1")
        job.wait_for(f"held {HELD}")
        before = job.status()["ranks"]
        service.kill_orchestrator()
        with ingress(service.url, status) as asked:
            wait_until(lambda: asked.count("/v1/agent") > 6, "both nodes, three times", LONG)
            wait_until(lambda: asked.count("/v1/jobs/job/agent") > 6, "both parts, three times", LONG)
        assert all(agent.poll() is None for agent in service.agents.values())
        assert all(is_alive(rank["pid"]) for rank in before)
        service.start_orchestrator()
        service.wait_for_nodes(2)
        job.let("let go")
        job.let("end")
        outcome = job.ends_like(undisturbed_spread(2))
        assert outcome.incidents == []


def test_a_refusal_shows_whether_the_orchestrator_knows_the_token(tmp_path: Path) -> None:
    """A token that is for something else is refused with a proof, one that this orchestrator has not made without."""
    with marked() as mark:
        service = Service(tmp_path, mark)
        wrong = Access(["the secret of another orchestrator"]).token(Role.AGENT)
        for token, status, proven in ((Access([TOKEN]).token(Role.READ), 403, True), (wrong, 401, False)):
            answer = httpx.get(f"{service.url}/v1/agent", headers=_upgrade(token, nonce := proof.nonce()))
            assert answer.status_code == status
            assert proof.is_proven(token, nonce, answer.headers.get(proof.PROOF, "")) == proven


def _upgrade(token: str, nonce: str) -> dict[str, str]:
    socket = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    return {**socket, "Authorization": f"Bearer {token}", proof.NONCE: nonce}
