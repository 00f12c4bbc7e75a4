"""A test or a benchmark sends signals through `tests.integration.processes`, which refuses processes that are not of a test.

`os.kill(0, SIGKILL)`, with a process id that was not known yet, has ended pytest and everything in its process group. A script that ends
or stops itself may use `os.kill(os.getpid(), ...)`. Also allowed everywhere are calls that cannot signal a group: `Popen.kill`, and
`signal.pidfd_send_signal`. Known limit: scripts in strings are not searched.
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.integration import processes
from tests.integration.processes import is_alive, pid_of, send, send_to_group

ROOT = Path(__file__).parents[2]
HELPER = Path(processes.__file__)
BY_HAND = {"kill", "killpg"}


def found(text: str) -> Iterator[int]:
    """The lines in which a signal is sent by hand to anything but the process itself, or could be."""
    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    to_itself = {call.func for call in calls if ast.unparse(call.func) == "os.kill" and ast.unparse(call.args[0]) == "os.getpid()"}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in BY_HAND and node not in to_itself:
                yield node.lineno
            case ast.ImportFrom(module="os", names=names) if any(alias.name in BY_HAND for alias in names):
                yield node.lineno


def test_signals_are_sent_by_the_helper_only() -> None:
    files = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py") if path != HELPER]
    assert len(files) > 100
    by_hand = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in found(path.read_text())]
    assert by_hand == [], "use send, send_to_group or is_alive of tests.integration.processes, with pid_of"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import os\nos.kill(pid, 9)", [2]),
        ("import os\nos.killpg(pid, 9)", [2]),
        ("import os\ncall(os.kill, pid, 9)", [2]),
        ("from os import getpid, kill", [1]),
        ("import os\nos.killpg(os.getpid(), 9)", [2]),
        ("import os\nos.kill(os.getpid(), 9)", []),
        ("process.kill()", []),
        ("from os import getpid", []),
    ],
)
def test_what_is_found(text: str, lines: list[int]) -> None:
    assert list(found(text)) == lines


@pytest.mark.parametrize("pid", [None, 0, 1, -1, -4711, os.getpid()], ids=["none", "0", "1", "-1", "group", "itself"])
def test_the_helper_refuses_what_is_no_process_of_a_test(pid: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
    monkeypatch.setattr(os, "killpg", lambda *arguments: sent.append(arguments))
    for refused in (lambda: send(pid, signal.SIGKILL), lambda: send_to_group(pid, signal.SIGKILL), lambda: is_alive(pid)):
        with pytest.raises(AssertionError):
            refused()
    with pytest.raises(AssertionError):
        send_to_group(os.getpgid(0), signal.SIGKILL)
    assert sent == []


def test_a_process_id_is_waited_for() -> None:
    answers: list[Mapping[str, int | None] | None] = [None, {"pid": None}, {}, {"pid": 4711}]

    def ask() -> Mapping[str, int | None] | None:
        return answers.pop(0)

    assert pid_of(ask) == 4711
    with pytest.raises(AssertionError, match="0 is no process of a test"):
        pid_of(lambda: {"pid": 0})
