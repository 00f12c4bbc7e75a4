"""One mutant after the other against the fast tests, each in a process of its own that reads the changed source."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import multiprocessing
import os
import resource
import sys
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path

from tests.mutants.operators import Mutant, mutated

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
LIMIT = 300.0  # seconds; what still runs then waits or loops for ever: the tests would have noticed
MEMORY = 6 << 30  # bytes of one process


@dataclass(frozen=True)
class Trial:
    """`path`: of the changed file. `outcome`: "killed", "late" (beyond the limit, which is killed too) or "lives"."""

    path: Path
    mutant: Mutant
    outcome: str

    @property
    def key(self) -> str:
        """The same as long as the place reads the same, wherever it stands in the file."""
        return f"{self.path.relative_to(SOURCE / 'understudy').as_posix()}:{self.mutant}"


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree."""

    def __init__(self, path: Path, number: int) -> None:
        self._path, self._number = path, number
        self._name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self) if fullname == self._name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(mutated(self._path.read_text(), self._number), str(self._path), "exec"), module.__dict__)


def _test(path: Path, number: int | None, tests: list[str]) -> None:
    """In the child: the tests with mutant `number`, or with none. Exits with pytest's code."""
    import hypothesis
    import pytest

    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if number is not None:
        sys.meta_path.insert(0, _Changed(path, number))
    # The same examples for every mutant, none that an earlier one has left behind, and no search for a shorter one: the first is enough.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", database=None, derandomize=True, print_blob=False, phases=phases)
    hypothesis.settings.load_profile("mutants")
    os.chdir(ROOT)
    os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))


def passes(tests: list[str]) -> bool:
    """Whether the tests pass as the sources are."""
    process = multiprocessing.get_context("fork").Process(target=_test, args=(SOURCE, None, tests))
    process.start()
    process.join()
    return process.exitcode == 0


def trials(chosen: Sequence[tuple[Path, Mutant, list[str]]], at_once: int) -> Iterator[Trial]:
    """Tries them all with their tests, `at_once` at a time, in the order in which they are through. Raises `FileNotFoundError` for tests
    that are not there: every change would seem to be noticed.
    """
    for test in {test for _, _, tests in chosen for test in tests}:
        if not (ROOT / test).exists():
            raise FileNotFoundError(f"there are no tests {test}")
    assert not any(name.split(".")[0] == "understudy" for name in sys.modules), "a child would have the unchanged module already"
    context = multiprocessing.get_context("fork")
    waiting = list(reversed(chosen))
    running: dict[int, tuple[ForkProcess, float, Path, Mutant]] = {}
    while waiting or running:
        while waiting and len(running) < at_once:
            path, mutant, tests = waiting.pop()
            process = context.Process(target=_test, args=(path, mutant.number, tests))
            process.start()
            running[process.sentinel] = process, time.monotonic() + LIMIT, path, mutant
        soonest = min(deadline for _, deadline, _, _ in running.values())
        ended = wait(list(running), timeout=max(0.0, soonest - time.monotonic()))
        for sentinel in [key for key in running if key in ended or running[key][1] <= time.monotonic()]:
            process, _, path, mutant = running.pop(sentinel)
            late = sentinel not in ended
            if late:
                process.kill()
            process.join()
            yield Trial(path, mutant, "late" if late else "lives" if process.exitcode == 0 else "killed")
