"""Parts of long runs are together the whole, and each of them runs something."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.parts import part_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_are_the_whole_without_repeats(count: int) -> None:
    found = [entry for number in range(1, count + 1) for entry in part_of(range(5), f"{number}/{count}")]
    assert sorted(found) == list(range(5))


@pytest.mark.parametrize("part", ["", "0/3", "4/3", "1", "a/b", "1/0", "-1/3"])
def test_what_is_no_part_is_refused(part: str) -> None:
    with pytest.raises(ValueError):
        part_of([1], part)


def test_each_part_of_make_whole_has_commands() -> None:
    """A pattern rule is not looked for where the target is phony: make finds nothing to be done, and is content."""
    makefile = (ROOT / "Makefile").read_text()
    whole = commands("whole")
    parts = " ".join(re.findall(r"^(?:PARTS|CONFORMANCE) :=((?:.*\\\n)*.*)$", makefile, re.MULTILINE)).replace("\\\n", " ").split()
    named = {part for part in parts if not part.startswith("$")}
    assert len(named) > 10
    for part in sorted(named):
        assert commands(part) and commands(part) <= whole, part


def commands(target: str) -> set[str]:
    """What make would run of tests."""
    shown = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line for line in shown.splitlines() if "-m pytest" in line or "-m tests." in line}
