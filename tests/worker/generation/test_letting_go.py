"""What is attached of a generation that is over is let go of; a worker that cannot do that leaves."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from tests.message_texts import has

from understudy.messages import worker_processes
from understudy.worker.generation import membership
from understudy.worker.generation.membership import Membership


class Ended(BaseException):
    pass


def let_go(drain: Any) -> list[str]:
    done = list[str]()
    groups = SimpleNamespace(abort=lambda: done.append("aborted"), drain=drain, stop_waking=lambda: done.append("woke the last"))
    peers = SimpleNamespace(close=lambda: done.append("closed"))
    judged = list[Exception]()
    channel = SimpleNamespace(take_trails=lambda: [done.append("read")], results={})  # type: ignore[func-returns-value]
    store = SimpleNamespace(put_trails=lambda trails: None, put_results=lambda results: None)
    here: Any = SimpleNamespace(groups=groups, peers=peers, channel=channel, store=store, leave_if_device_failed=judged.append)
    Membership.let_go(here)
    assert here.peers is here.channel is None
    return done


def test_all_of_it_is() -> None:
    assert let_go(lambda: None) == ["aborted", "read", "closed", "woke the last"]


def test_a_worker_whose_communicators_do_not_end_leaves(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    codes = list[int]()

    def leaves(code: int) -> None:
        codes.append(code)
        raise Ended

    def drain() -> None:
        raise RuntimeError("ProcessGroup abort timed out after 600000 ms")

    monkeypatch.setattr(os, "_exit", leaves)
    with pytest.raises(Ended):
        let_go(drain)
    assert codes == [membership.NOT_LET_GO]
    assert has(capfd.readouterr().err, worker_processes.NOT_LET_GO, error="ProcessGroup abort timed out after 600000 ms")
