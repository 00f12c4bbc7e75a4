"""Names that every iteration of a loop sets before it reads them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from understudy.worker.census.carried import names_set_by_loops, names_set_first

CASES = {
    "set and read": ("loss = step(i)\nprint(loss)", {"i", "loss"}),
    "read first": ("print(best)\nbest = i", {"i"}),
    "under a condition": ("if i:\n    best = i", {"i"}),
    "before the condition": ("x = 1\nif i:\n    x = 2", {"i", "x"}),
    "changed in place": ("total += i", {"i"}),
    "several at once": ("a, b = step(i), c\nc = a", {"i", "a", "b"}),
    "in a with": ("with scope() as s:\n    x = step(i)", {"i", "s", "x"}),
    "inside an inner loop": ("for k in range(2):\n    y = k", {"i"}),
    "an item of something": ("best['x'] = i\nbest = {}", {"i"}),
    "read by a function": ("seen = i\ncalls(lambda: seen)", {"i"}),
    "another one's name": ("seen = i\ncalls(lambda seen: seen)", {"i", "seen"}),
    "set by a function": ("def inner():\n    global seen\n    seen = 1\nseen = i", {"i"}),
    "in the block of attempts": ("for attempt in job.attempts():\n    with attempt:\n        x = i\nprint(x)", {"i", "attempt", "x"}),
    "read first in attempts": ("for attempt in job.attempts():\n    with attempt:\n        x = x + i", {"i", "attempt"}),
    "a function's own": ("def inner():\n    seen = 1\n    return seen\nseen = i", {"i", "seen"}),
}


NESTED = {
    "of the job's loop and inside it": (
        "for i in items:\n    for j in job.steps(1):\n        x = j\n        for k in items:\n            y = k\n            mark()",
        "jxky",
    ),
    "not of those around it": (
        "for i in items:\n    total = 0\n    for j in enumerate(job.batches(1)):\n        total += 1\n        x = mark()",
        "jx",
    ),
    "of the innermost one, if none is the job's": (
        "for i in items:\n    total = 0\n    for j in items:\n        total += 1\n        mark()",
        "j",
    ),
    "of none after them": ("for j in job.steps(1):\n    x = j\nmark()", ""),
}


@pytest.mark.parametrize("case", NESTED)
def test_which_loops_count(case: str, tmp_path: Path) -> None:
    text, expected = NESTED[case]
    path = tmp_path / "script.py"
    path.write_text(text)
    seen: list[frozenset[str] | None] = []
    job = SimpleNamespace(steps=range, batches=range)
    exec(
        compile(text, str(path), "exec"),
        {"mark": lambda: seen.append(names_set_first(sys._getframe(1))), "items": [0], "job": job},
    )
    assert [set(names or ()) for names in seen] == [set(expected)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("inside", [False, True], ids=["module", "function"])
def test_names(case: str, inside: bool, tmp_path: Path) -> None:
    body, expected = CASES[case]
    loop = "for i in items:\n" + "".join(f"    {line}\n" for line in ["mark()", *body.split("\n")])
    text = (
        "def main(total=0, best={}, c=0, x=0):\n" + "".join(f"    {line}\n" for line in loop.split("\n")) + "main()\n" if inside else loop
    )
    path = tmp_path / "script.py"
    path.write_text(text)
    seen: list[frozenset[str] | None] = []

    def mark() -> None:
        frame = sys._getframe(1)
        assert isinstance(frame, FrameType)
        seen.append(names_set_first(frame))

    names: dict[str, Any] = {"mark": mark, "items": [0], "step": abs, "calls": callable, "total": 0, "best": {}, "c": 0}
    names["scope"] = lambda: path.open()
    names |= {"job": SimpleNamespace(attempts=lambda: [nullcontext()]), "x": 0}
    exec(compile(text, str(path), "exec"), names)  # the way a script is run
    assert [set(names or ()) for names in seen] == [expected]


def test_names_of_all_loops_of_a_scope(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    loops = ["for i in j:\n    k = i", "while k:\n    m = k\n    del n", "for o in p:\n    for q in job.steps(1):\n        r = q"]
    path.write_text("\n".join(["def f():\n    for a in b:\n        c = a\n        d += 1", *loops, ""]))
    assert names_set_by_loops(str(path), 0) == {"i", "k", "m", "o", "q", "r"}
    assert names_set_by_loops(str(path), 1) == {"a", "c"}
    assert names_set_by_loops(str(path), 7) == set()


def test_a_scope_without_source_is_unknown() -> None:
    seen: list[frozenset[str] | None] = []
    names = {"mark": lambda: seen.append(names_set_first(sys._getframe(1)))}
    exec("for i in range(1):\n    mark()\n", names)
    assert seen == [None]


def test_the_targets_of_a_running_comprehension_are_set_again(tmp_path: Path) -> None:
    """From Python 3.12 on it has no frame of its own."""
    path = tmp_path / "script.py"
    path.write_text("def train():\n    return [(mark(), batch) for batch in items for k in [1]]\ntrain()\n")
    seen: list[frozenset[str] | None] = []

    def mark() -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_name != "train":
            assert frame.f_back is not None
            frame = frame.f_back
        seen.append(names_set_first(frame))

    exec(compile(path.read_text(), str(path), "exec"), {"mark": mark, "items": [0]})
    assert list(map(set, filter(None, seen))) == [{"batch", "k"}]
