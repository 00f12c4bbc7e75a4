"""The parts of a rank are put together without a cycle: each gets what it needs when it is made."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from understudy.core.commands import Assign
from understudy.links.lifeline import Lifeline
from understudy.links.page import PageWriter
from understudy.worker.guards.file_access import FileAccessGuard
from understudy.worker.process.control import Control
from understudy.worker.step.runtime import Runtime
from understudy.worker.transport.rendezvous import StoreServer

# What a thread that was there before the parts calls back, and nothing else.
PORTS = {("Control", "handlers")}


def parts_of(thing: object) -> Iterator[tuple[str, object]]:
    """Our own objects in the attributes of `thing`; also those in containers. References of a function do not count."""
    held = vars(thing) if hasattr(thing, "__dict__") else {}
    for name, value in held.items():
        for part in _within(value):
            if type(part).__module__.startswith("understudy.worker"):
                yield name, part


def _within(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _within(part)
    elif isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        for part in value:
            yield from _within(part)
    else:
        yield value


def cycles(root: object) -> list[str]:
    found: list[str] = []
    way: dict[int, str] = {}
    done: dict[int, object] = {}  # keeps them, so that no number comes twice

    def visit(thing: object, name: str) -> None:
        if id(thing) in way:
            names = list(way.values())
            found.append(" > ".join([*names[list(way).index(id(thing)) :], name]))
            return
        if id(thing) in done:
            return
        way[id(thing)] = name
        for attribute, part in parts_of(thing):
            if (type(thing).__name__, attribute) not in PORTS:
                visit(part, f"{type(part).__name__} as {attribute}")
        del way[id(thing)]
        done[id(thing)] = thing

    visit(root, type(root).__name__)
    return found


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    ours, theirs = socket.socketpair()
    page = PageWriter(tmp_path / "page")
    yield Control(ours, "w0", page, Lifeline(None), (0, 0), tmp_path)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("opened", [None, FileAccessGuard()], ids=["a rank from the start", "a newcomer"])
def test_the_object_graph_has_no_cycle(control: Control, opened: FileAccessGuard | None) -> None:
    role = Assign("w0", 0, 0, opened is not None, False, "here:1", {"RANK": "0", "WORLD_SIZE": "2"})
    server = StoreServer("127.0.0.1")
    runtime = Runtime(control, role, server, opened, {cycles.__code__})
    assert (runtime.newcomer is None) == (opened is None)
    assert cycles(runtime) == []
    assert control.handlers is runtime.handlers


class Knot:
    def __init__(self, other: Any = None) -> None:
        self.others = [other]


def test_a_cycle_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Knot, "__module__", "understudy.worker.somewhere")
    first = Knot(Knot())
    assert cycles(first) == []
    first.others[0].others.append(first)
    assert cycles(first) == ["Knot > Knot as others > Knot as others"]
