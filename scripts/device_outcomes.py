"""Write the outcomes of a failed device into `docs/operate/lose-a-node.md`, from the tests that show it (`tests/outcomes.py`)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.generated import ROOT, write

PAGE = ROOT / "docs" / "operate" / "lose-a-node.md"
TESTS = ("tests/faults/test_device_errors.py", "tests/worker/devices/test_device_errors.py", "tests/core/test_device_faults.py")


def shown() -> Iterator[tuple[str, str, str]]:
    """Yield the failure, the outcome ("" if another test of the row has it), and the test."""
    for path in TESTS:
        functions = [node for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)]
        for node in functions:
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "shows":
                    seen, *follows = [ast.literal_eval(argument) for argument in mark.args]
                    yield seen, "".join(follows), f"`{path}::{node.name}`"


def made() -> str:
    """Return the table. Raises `ValueError` if a row lacks its outcome, or has it twice."""
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for seen, follows, test in shown():
        said, tests = rows.setdefault(seen, ([], []))
        said += [follows] if follows else []
        tests.append(test)
    if wrong := [seen for seen, (said, _) in rows.items() if len(said) != 1]:
        raise ValueError(f"one test of a row says what follows: {', '.join(wrong)}")
    lines = [f"| {seen} | {said[0]} | {'<br>'.join(tests)} |" for seen, (said, tests) in rows.items()]
    return "\n".join(["| what is seen | what follows | shown by |", "|---|---|---|", *lines])


if __name__ == "__main__":
    sys.exit(write("scripts/device_outcomes.py", PAGE, made, __doc__))
