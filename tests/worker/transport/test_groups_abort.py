"""What is to happen before communicators are broken happens before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from understudy.worker.transport.groups import Groups, _Made


def test_it_is_done_before_any_communicator_is_broken() -> None:
    order: list[str] = []
    groups, backend = Groups(), next(iter(Groups()._backends.values()))
    for number in range(2):
        communicator: Any = SimpleNamespace(abort=lambda number=number: order.append(f"communicator {number}"))
        groups.keep(_Made(backend, communicator))
    groups.before_abort(lambda: order.append("before"))
    groups.abort()
    assert order == ["before", "communicator 0", "communicator 1"]
