"""A command that follows a job waits for an orchestrator that is away, each time from the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from understudy.cli import client, submitted_jobs
from understudy.cli.client import Denied, NoAnswer, Server


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Restarted(Server):
    """Is away twice, longer than `PATIENCE` apart, and has an answer in between; the job ends with code 7."""

    clock = Clock()
    streams = 0

    def call(self, method: str, path: str, body: Any = None, limit: float = 0.0) -> Any:
        return {"state": "finished" if type(self).streams == 3 else "running", "message": "", "exit_code": 7}

    def stream(self, path: str) -> Iterator[bytes]:
        type(self).streams += 1
        yield b""
        if type(self).streams < 3:
            self.clock.now += 2 * client.PATIENCE
            raise NoAnswer("killed")


class Gone(Restarted):
    def call(self, method: str, path: str, body: Any = None, limit: float = 0.0) -> Any:
        raise NoAnswer("no one there")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(client, "time", Restarted.clock)
    monkeypatch.setattr(submitted_jobs, "time", Restarted.clock)
    return Restarted.clock


def test_an_answer_in_between_counts() -> None:
    assert submitted_jobs.follow(Restarted("http://nowhere"), "job") == 7


def test_it_ends(clock: Clock) -> None:
    before = clock.now
    assert submitted_jobs.follow(Gone("http://nowhere"), "job") == 1
    assert client.PATIENCE < clock.now - before < client.PATIENCE + 1


@pytest.mark.parametrize(("kind", "raised"), [("application/problem+json", Denied), ("text/html", NoAnswer)])
def test_only_an_orchestrator_denies(kind: str, raised: type[Exception]) -> None:
    """An ingress without a backend has a 404 for everything."""
    answer = httpx.Response(404, headers={"Content-Type": kind}, json={"detail": "no job"}, request=httpx.Request("GET", "http://there"))
    with pytest.raises(raised):
        client._check(answer)
