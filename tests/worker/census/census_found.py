"""A census over a process of the tests, and what it finds of the one module that stands for the script."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import numpy
import pytest
import torch

from understudy.worker.census import leaves, roots
from understudy.worker.census.census import Census
from understudy.worker.state.unregistered import is_unregistered

HERE = "tests.worker.census.census_script"
LARGE: dict[str, Callable[[int], Any]] = {
    "an array": lambda seed: numpy.random.default_rng(seed).standard_normal(1 << 18),
    "a tensor": lambda seed: torch.full((1 << 19,), float(seed)),
    "a list": lambda seed: [str(number + seed) for number in range(leaves.LONGEST + 1)],
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The only module of the script: those of all tests may be too many for a look."""
    module = importlib.import_module(HERE)
    for name in [name for name in vars(module) if not name.startswith("__")]:
        delattr(module, name)  # what another test has left there
    importlib.reload(module)
    assert isinstance(module, ModuleType)
    monkeypatch.setattr(roots, "modules", lambda: [(HERE, vars(module))])
    return module


def boundary() -> CodeType:
    return boundary.__code__


class Found:
    """A census over this process, with what it finds of the module of these tests."""

    def __init__(self, covered: Any = (), set_up: bool = True) -> None:
        self.streams: dict[str, Any] = {}
        known = set(map(id, covered))
        self.census = Census(lambda: lambda thing: id(thing) in known, {boundary()}, self.streams.__setitem__)
        self.census.ignore({"found", "mine", "newcomer", "noted"})  # what tests have in their frames, which are looked at, too
        if set_up:
            self.census.set_up()

    def changed(self, closely: bool = True) -> dict[str, bytes]:
        found = self.census.encoded(None, closely)
        assert all(map(is_unregistered, found))
        return {entry: data for entry, data in found.items() if "census_script" in entry}

    def names(self, closely: bool = True) -> set[str]:
        return {entry.rpartition(":")[2] for entry in self.changed(closely)}
