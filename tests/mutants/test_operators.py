"""The mutation tester itself: what it changes, that it changes it, and that the tests bite on a change that matters."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import PURE, known
from tests.mutants.operators import mutants, mutated
from tests.mutants.run import ROOT
from tests.mutants.run import SOURCE as SOURCES

SOURCE = '''
LIMIT = 3

class Box:
    size: int = 1

    def full(self, count: int = 2) -> bool:
        """Whether it is."""
        if not count or self.size <= count and count in (1, 2):
            self.size += 1
            self.tell(f"{count} is {1 + 1}")
            return True
        return any(n for n in range(count) if n > 0)
'''


def test_what_is_changed() -> None:
    assert {mutant.what for mutant in mutants(SOURCE)} == {
        "if not count or (self.size <= count and count in (1, 2)) -> if True",
        "if not count or (self.size <= count and count in (1, 2)) -> if False",
        "not count or (self.size <= count and count in (1, 2)) -> self.size <= count and count in (1, 2)",
        "not count or (self.size <= count and count in (1, 2)) -> not count",
        "not count or (self.size <= count and count in (1, 2)) -> not count and (self.size <= count and count in (1, 2))",
        "not count -> count",
        "self.size <= count and count in (1, 2) -> count in (1, 2)",
        "self.size <= count and count in (1, 2) -> self.size <= count",
        "self.size <= count and count in (1, 2) -> self.size <= count or count in (1, 2)",
        "self.size <= count -> self.size < count",
        "count in (1, 2) -> count not in (1, 2)",
        "1 -> 2",
        "2 -> 3",
        "without self.size += 1",
        "True -> False",
        "any((n for n in range(count) if n > 0)) -> all((n for n in range(count) if n > 0))",
        "(n for n in range(count) if n > 0) -> (n for n in range(count))",
        "n > 0 -> n >= 0",
        "0 -> 1",
    }


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_a_mutant_is_another_program(path: Path) -> None:
    source = path.read_text()
    whole = ast.dump(ast.parse(source))
    for mutant in mutants(source)[::20]:
        tree = mutated(source, mutant.number)
        compile(tree, str(path), "exec")
        assert ast.dump(tree) != whole, mutant


def test_what_is_known_of_survivors_can_be_read() -> None:
    assert set(known().values()) <= {"equivalent", "harmless", "to be mended"}
    there = {f"{path.relative_to(SOURCES / 'understudy').as_posix()}:{mutant}" for path in PURE for mutant in mutants(path.read_text())}
    assert not known().keys() - there, "what they are about is not there any more"


PROGRAM = """
from pathlib import Path
from tests.mutants.operators import mutants
from tests.mutants.run import SOURCE, trials

path = SOURCE / "understudy/core/commit.py"
chosen = [mutant for mutant in mutants(path.read_text()) if str(mutant) == "decide:highest - lowest > 1 -> highest - lowest >= 1"]
for tests in (["tests/core/test_commit.py"], ["tests/orchestrator/quorum/test_roster.py"]):
    print([trial.outcome for trial in trials([(path, mutant, tests) for mutant in chosen], 1)])
"""


def test_a_change_that_matters_is_noticed_by_the_tests_that_see_it_and_by_no_others() -> None:
    """In a process of its own, which has not imported what is changed."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["['killed']", "['lives']"], ran.stdout + ran.stderr
