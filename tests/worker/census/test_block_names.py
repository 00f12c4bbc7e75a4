"""Names of the block of `job.attempts()`, found in the source."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from understudy.worker.census.block_names import BlockNames, names_of_block

Names = tuple[str, ...]
CASES: dict[str, tuple[str, str, tuple[Names, Names, Names], str]] = {  # block, before it, its names, after it
    "the batch is given": ("with attempt:\n    loss = step(i)", "", (("loss",), ("i",), ()), ""),
    "a name that is set before it in the iteration": ("with attempt:\n    x = x + i", "x = 0\n", (("x",), ("i", "x"), ()), ""),
    "a name that the loop carries": ("with attempt:\n    total = total + 1", "", (("total",), (), ()), ""),
    "a result": ("with attempt:\n    loss = step(i)", "", (("loss",), ("i",), ("loss",)), "print(loss)"),
    "what the loop carries is no result": ("with attempt:\n    total += 1", "", (("total",), (), ()), "print(total)"),
    "what is set under a condition is carried": ("with attempt:\n    if i:\n        best = i", "", (("best",), ("i",), ()), "print(best)"),
}


@pytest.mark.parametrize("case", CASES)
def test_names_of_a_block(case: str, tmp_path: Path) -> None:
    block, before, expected, after = CASES[case]
    lines = [*before.splitlines(), "for attempt in job.attempts():", *(f"    {line}" for line in block.splitlines()), *after.splitlines()]
    text = "for i in job.steps(1):\n" + "\n".join(f"    {line}" for line in lines)
    path = tmp_path / "script.py"
    path.write_text(text)
    seen: list[BlockNames] = []

    def attempts() -> list[None]:
        seen.append(names_of_block(sys._getframe(1)))
        return []

    job = SimpleNamespace(steps=range, attempts=attempts)
    names = {"job": job, "loss": 0.0, "total": 0, "best": 0}
    exec(compile(text, str(path), "exec"), names)
    (found,) = seen
    assert (found.bound, found.given, found.left) == expected
    assert found.where == f"script.py:{2 + len(before.splitlines())}"
