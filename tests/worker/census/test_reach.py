"""What a look cannot carry over is at least known when it changes: one shape after the other, changed in one place."""

from __future__ import annotations

import collections
import functools
import io
import logging
import math
import os
import random
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.worker.census.census_found import Found, script
from tests.worker.census.shapes import SHAPES, Holder, closure, one, two

__all__ = ["script"]


def _unseen(found: Found) -> set[str]:
    found.changed()
    return {one.name for one in found.census.listed(()) if one.kind == "unseen" and "census_script" in one.root}


@pytest.mark.parametrize("name", SHAPES)
def test_a_change_is_known_with_the_way_to_it(script: Any, name: str) -> None:
    script.thing, change, way = SHAPES[name]()
    found = Found()
    assert _unseen(found) == set()
    change()
    assert any(one.startswith(way) for one in _unseen(found)), found.census.listed(())


NEW: dict[str, Any] = {
    "a function": two,
    "a lambda": lambda: 1,
    "a partial": functools.partial(one),
    "a method": Holder().first,
    "a class": Holder,
    "a function of Python": len,
    "a function of torch": torch.relu,
    "a module": torch.nn.ReLU(),
}


@pytest.mark.parametrize("new", NEW)
def test_a_name_that_is_bound_to_something_else_is_a_change(script: Any, new: str) -> None:
    script.thing = one
    found = Found()
    script.thing = NEW[new]
    assert _unseen(found) == {"thing"}


def test_a_method_replaced_by_another_is_a_change(script: Any) -> None:
    script.thing = Holder()
    script.thing.loss = script.thing.first
    found = Found()
    script.thing.loss = script.thing.second
    assert _unseen(found) == {"thing.loss.__func__"}


def test_a_name_that_is_bound_to_another_known_thing_is_a_change(script: Any) -> None:
    script.easy, script.hard = [1], [2]
    script.used = script.easy
    found = Found()
    script.used = script.hard
    assert _unseen(found) == {"used"}


def test_a_position_in_a_file_is_a_change(script: Any, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    with (tmp_path / "lines").open() as file:
        script.thing = file
        found = Found()
        next(file)
        assert _unseen(found) == {"thing"}


def test_a_definition_is_no_change_but_what_it_captures_may_be(script: Any) -> None:
    found = Found()
    script.turn_back, change, _ = closure()
    script.turn_back.__qualname__ = "main.<locals>.turn_back"
    script.other, _, _ = closure()
    assert _unseen(found) == {"other"}
    change()
    assert _unseen(found) == {"other", "turn_back.count"}


def test_what_cannot_be_read_ends_no_step(script: Any) -> None:
    class Broken(dict[str, Any]):
        def __len__(self) -> int:
            raise RuntimeError("not now")

        __iter__ = None  # type: ignore[assignment]

    with torch.inference_mode():
        script.reference = torch.ones(2)
    script.broken, script.choice, script.lazy = Broken(a=1), random.SystemRandom().choice, torch.nn.LazyLinear(2)
    script.closed = io.BytesIO()
    script.closed.close()
    found = Found()
    found.census.restore(found.census.note(), {})
    assert _unseen(found) == set()
    assert [one.name for one in found.census.listed(()) if one.kind == "beyond"] == ["broken"]


def test_what_is_no_state_is_not_reported(script: Any, tmp_path: Path) -> None:
    found = Found()
    with (tmp_path / "log").open("w") as script.log:
        script.logger, script.module, script.lock = logging.getLogger("a"), os, threading.Lock()
        assert _unseen(found) == set()


def test_what_hangs_on_a_registered_module_is_known(script: Any) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.activation, self.seen = torch.nn.Linear(2, 2), torch.relu, collections.deque[int]()

    script.net = Net()
    parts = [script.net, script.net.layer, *script.net.parameters()]
    found = Found(parts)
    with torch.no_grad():
        script.net.layer.weight.add_(1)  # registered
    assert _unseen(found) == set()
    script.net.activation = torch.sigmoid
    script.net.seen.append(1)
    script.net.layer.weight.scale = 2.0
    script.net.layer.weight.register_hook(lambda gradient: gradient * 2)
    script.net.layer.register_forward_hook(lambda *given: None)
    assert _unseen(found) == {
        *("net.activation", "net.seen", "net.layer.weight.scale", "net.layer.weight._backward_hooks[0]", "net.layer._forward_hooks[0]")
    }


def test_what_a_state_dict_forgets_is_known(script: Any) -> None:
    class Meter:
        def __init__(self) -> None:
            self._count, self.total, self.best, self.window, self.patience = 0, torch.zeros(2), 0.5, [0.25], 3

        def state_dict(self) -> dict[str, Any]:
            return {"n": self._count, "sums": [self.total.clone()]}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    script.meter = Meter()
    found = Found([script.meter])
    script.meter._count = 3
    script.meter.total.add_(1)
    assert _unseen(found) == set()
    script.meter.best = 0.75
    script.meter.window.append(0.5)
    assert _unseen(found) == {"meter.best", "meter.window"}


def test_globals_of_packages_that_the_script_names_are_known(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found()
    monkeypatch.setattr(math, "tau", 6.0)
    monkeypatch.setattr(math, "e", 2.0)  # the script does not depend on it
    found.changed()
    assert {one.name for one in found.census.listed(()) if one.root == "math"} == {"tau"}


def test_globals_of_modules_that_no_import_has_made_are_known(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("made_by_the_script")
    made.__dict__["level"] = 1
    monkeypatch.setitem(sys.modules, made.__name__, made)
    found = Found()
    made.__dict__["level"] = 2
    found.changed()
    assert {one.name for one in found.census.listed(()) if one.root == made.__name__} == {"level"}


def test_hooks_of_all_modules_are_known(script: Any) -> None:
    found = Found()
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *given: None)
    try:
        found.changed()
    finally:
        handle.remove()
    assert {one.name for one in found.census.listed(()) if one.root == "torch.nn"} == {"global_forward_hooks"}


def test_the_place_in_a_sampler_is_followed_elsewhere(script: Any) -> None:
    script.sampler = torch.utils.data.DistributedSampler(range(8), num_replicas=2, rank=0)  # type: ignore[arg-type]
    found = Found()
    script.sampler.set_epoch(3)
    assert _unseen(found) == set()
    script.sampler.weight = 0.5
    assert _unseen(found) == {"sampler.weight"}


def test_what_the_script_has_added_to_the_sampler_of_a_loader_is_seen(script: Any) -> None:
    data = list(range(8))
    script.loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data, 2, 0))  # type: ignore[arg-type]
    script.loader.sampler.weight = 0.0
    found = Found()
    script.loader.sampler.set_epoch(3)
    assert _unseen(found) == set()
    script.loader.sampler.weight = 0.5
    assert _unseen(found) == {"loader.sampler.weight"}


def test_containers_of_tensors_that_are_large_together_are_reported(script: Any) -> None:
    script.thing = {number: torch.zeros(1 << 16) for number in range(8)}
    found = Found()
    assert found.names() == set() and found.census.news() == []
    script.thing[3].fill_(1)
    assert found.names() == set()
    assert [one.name for one in found.census.listed(()) if one.kind == "large"] == ["thing"]


def test_two_looks_at_what_does_not_change_find_nothing(script: Any) -> None:
    script.thing = [make() for make in SHAPES.values()]
    found = Found()
    assert _unseen(found) == set() and _unseen(found) == set()


class _Proxy:
    """Asks to be left alone: `__class__` of a lazy object runs its code."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            _Proxy.asked += 1
            return dict
        return object.__getattribute__(self, name)


def test_no_code_of_the_script_runs(script: Any) -> None:
    script.thing = lambda proxy=_Proxy(): proxy  # noqa: B008
    _unseen(Found())
    assert _Proxy.asked == 0


def test_ignored_things_are_not_reported(script: Any) -> None:
    script.thing, change, _ = closure()
    found = Found()
    found.census.ignore({"thing.count"})
    change()
    assert _unseen(found) == set()


def test_a_closure_that_is_a_root_now_and_then_changes_no_name(script: Any) -> None:
    """What it captures has its first name from a frame that lasts longer, whether the function around the closure runs or not."""
    found, thing = Found(set_up=False), Holder()

    def train(model: Holder) -> None:
        def step() -> Holder:
            return model

        found.census.transaction(step)
        found.census.set_up()

    train(thing)
    found.changed()
    assert not [one for one in found.census.listed(()) if one.kind == "unseen" and one.name.startswith(("thing", "model"))]
