"""A look at what a script can reach: what it finds, what it sets, and that it runs no code of the script."""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy
import pytest
import torch

from understudy.worker.census import census, leaves, owners, roots, walk
from understudy.worker.census.census import Census
from understudy.worker.encoding.codec import decode, encode
from understudy.worker.errors import BadMessage
from understudy.worker.state.beside import is_beside
from understudy.worker.state.registry import State

HERE = "tests.unit.census_script"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The only module of the script: those of all tests may be too many for a look."""
    module = importlib.reload(importlib.import_module(HERE))
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
        self.census = Census(lambda: lambda thing: id(thing) in known, boundary(), self.streams.__setitem__)
        if set_up:
            self.census.set_up()

    def changed(self, closely: bool = True) -> dict[str, bytes]:
        found = self.census.encoded(None, closely)
        assert all(map(is_beside, found))
        return {entry: data for entry, data in found.items() if "census_script" in entry}

    def names(self, closely: bool = True) -> set[str]:
        return {entry.rpartition(":")[2] for entry in self.changed(closely)}


def test_nothing_has_changed_at_first(script: Any) -> None:
    assert Found().names() == set()


def test_what_has_changed_is_found_wherever_it_is(script: Any) -> None:
    found = Found()
    script.counter += 1
    script.history.append(0.5)
    script.settings.noise = 0.4
    script.bank.add_(1)
    script.trainer._hidden = 2
    script.trainer.progress.best = 0.25
    script.trainer.progress.seen["x"] = 1
    script.trainer.meters["top5"].count = 7
    script.Trainer.patience = 2
    script.trainer.mode = script.Mode.MAIN
    script.remembers(1.0)
    script.remembers.calls = 1
    expected = {"counter", "history", "settings.noise", "bank", "trainer._hidden", "trainer.meters['top5'].count", "patience"}
    expected |= {"seen=", "calls", "trainer.mode"}
    assert found.names() >= expected
    assert found.names() - expected in (
        {"trainer.progress.best", "trainer.progress.seen"},
        {"alias.best", "alias.seen"},
    )
    assert script.trainer.asked == 0


def test_what_is_found_is_given_to_another_worker(script: Any) -> None:
    found = Found()
    script.counter, script.history[:], script.settings.noise = 5, [1.0, 2.0], 0.1
    script.trainer.meters["top1"].count = 3
    script.bank.fill_(2)
    script.trainer.mode = script.Mode.MAIN
    given = found.changed()
    kept = script.history
    newcomer = importlib.reload(script)  # its set-up
    mine = Found()
    history, bank = newcomer.history, newcomer.bank
    for entry, data in given.items():
        mine.census.load(entry, data)
    assert (newcomer.counter, newcomer.history, newcomer.settings.noise) == (5, [1.0, 2.0], 0.1)
    assert newcomer.history is history and newcomer.bank is bank and history is not kept
    assert newcomer.trainer.mode is newcomer.Mode.MAIN
    assert newcomer.trainer.meters["top1"].count == 3 and newcomer.bank.tolist() == [2.0] * 4
    assert mine.changed(closely=False) == given


def test_an_object_of_a_newcomer_that_the_others_have_left_is_not_written_over(script: Any) -> None:
    found = Found()
    script.bank = torch.ones(4)
    given = found.changed()
    newcomer = importlib.reload(script)
    mine, batch = Found(), newcomer.bank
    for entry, data in given.items():
        mine.census.load(entry, data)
    assert newcomer.bank.tolist() == [1.0] * 4 and newcomer.bank is not batch and batch.tolist() == [0.0] * 4


def test_a_redo_finds_it_as_it_was(script: Any) -> None:
    found = Found()
    bank, seen = script.bank, script.trainer.progress.seen
    noted = found.census.note()
    script.counter, script.bank = 9, torch.ones(4)
    bank.fill_(7)
    script.history.append(1.0)
    seen["x"] = 1
    script.trainer.progress.seen = {}
    found.census.restore(noted, {})
    assert script.counter == 0 and script.bank is bank and bank.tolist() == [0.0] * 4 and script.history == []
    assert script.trainer.progress.seen is seen == {}


def test_later_redos_look_at_what_has_changed_before_only(script: Any) -> None:
    found = Found()
    for _ in range(3):
        found.census.note()
    script.counter = 1
    assert found.names() == {"counter"}
    script.history.append(0.5)
    assert found.names() == {"counter", "history"}
    noted, values, history = found.census.note(), found.changed(closely=False), script.history
    script.counter = 2
    script.history[:] = []
    found.census.restore(noted, values)
    assert script.counter == 1 and script.history is history == [0.5]


def test_a_comprehension_that_runs_is_no_scope_to_tell_of(script: Any) -> None:
    found = Found()
    told = [(found.names(), found.census.news(), (lambda kept: found.census.news())(kept=0)) for _ in range(2)]
    assert told == [(set(), [], [])] * 2


def test_an_iterator_that_moves_is_told(script: Any) -> None:
    found = Found()
    assert found.census.news() == []
    next(script.ticks)
    assert found.names() == set() and found.census.news() == []  # a newcomer does that, too
    found.census.at_top()
    assert found.names() == set()
    (text,) = found.census.news()
    assert "ticks" in text and "iterator" in text and found.census.news() == []


def test_of_a_hidden_state_whose_history_is_spent_the_values_are_moved(script: Any) -> None:
    found = Found()
    weight = torch.ones(2, requires_grad=True)
    script.hidden = (weight * 3, weight * 5)
    torch.autograd.backward([part.sum() for part in script.hidden])
    noted, values, hidden = found.census.note(), found.changed(), script.hidden
    assert found.names() == {"hidden"}
    script.hidden = None
    newcomer = Found().census
    for entry, data in values.items():
        newcomer.load(entry, data)
    assert [part.tolist() for part in script.hidden] == [[3.0, 3.0], [5.0, 5.0]]
    found.census.restore(noted, values)
    assert script.hidden is hidden
    found.census.at_top()
    assert found.census.news() == []


def test_a_graph_that_is_kept_from_step_to_step_is_told(script: Any) -> None:
    weight = torch.ones(2, requires_grad=True)
    script.constant, script.hidden = weight * 2, weight * 3
    found = Found()
    assert found.names() == set() and found.census.news() == []
    script.hidden = weight * 5
    assert found.names() == set() and found.census.news() == []  # in a step there are many
    found.census.at_top()
    (text,) = found.census.news()
    assert "hidden" in text and "graph" in text and "constant" not in text
    assert [item.name for item in found.census.listed([]) if item.kind == "history"] == ["hidden"]


def test_what_is_ignored_is_neither_taken_nor_told(script: Any) -> None:
    found = Found()
    found.census.ignore(["counter", "noise", "ticks"])
    script.counter, script.settings.noise = 1, 0.0
    next(script.ticks)
    assert found.names() == set() and found.census.news() == []


def test_what_is_registered_is_left_to_others(script: Any) -> None:
    found = Found([script.trainer, script.bank, script.alias])
    script.trainer._hidden = 1
    script.bank.add_(1)
    assert found.names() == set()


def test_a_value_that_matters_to_people_only_is_left_and_told(script: Any) -> None:
    found = Found()
    script.counter = 1
    (entry,) = found.changed()
    assert found.census.leave(entry) and found.names() == set()
    (text,) = found.census.news()
    assert "counter" in text and "job.state" in text and "job.ignore" in text
    script.counter = 2
    assert found.names() == set()


def test_a_tensor_is_not_left(script: Any) -> None:
    found = Found()
    script.bank.add_(1)
    (entry,) = found.changed()
    assert not found.census.leave(entry) and found.names() == {"bank"}


def test_what_another_worker_says_replaces_no_code(script: Any) -> None:
    found = Found()
    script.counter = 1
    ((entry, data),) = found.changed().items()
    Progress = script.Progress
    forged = data.replace(b"counter", b"Trainer")
    found.census.load(entry.replace("counter", "Trainer"), forged)
    assert isinstance(script.Trainer, type) and script.Progress is Progress


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", encode([1]), encode([b"\xc1"]), encode([encode([1, 2])]), encode([encode([["a", "b"], "c", [["item", []]]])])]
)
def test_what_is_malformed_is_said_to_be(script: Any, data: bytes) -> None:
    with pytest.raises(BadMessage):
        Found().census.load("script:module:x:y", data)


def test_a_way_through_modules_and_classes_leads_nowhere(script: Any) -> None:
    found = Found()
    for steps in ([("attribute", "MOST")], [("attribute", "Look"), ("attribute", "beyond")]):
        path = walk.Path(("module", __name__), "walk", tuple(steps))
        found.census.load(path.entry, encode([path.encoded, False, leaves.encoded(1)]))
    assert walk.MOST == 20_000 and walk.Look.beyond is None


def test_what_is_watched_is_small(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found()
    monkeypatch.setattr(census, "TOTAL", 200)
    script.history += [0.5] * 50
    script.counter = 1
    assert found.names() == {"counter"}
    (text,) = found.census.news()
    assert "history" in text and "too much" in text and "counter" not in text


def test_a_list_of_what_is_registered_is_looked_at_item_by_item(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = [torch.zeros(3), torch.zeros(3)]
    mixed: dict[str, Any] = {"parameter": parameters[0], "seen": 0}
    monkeypatch.setattr(script, "parameters", [parameters], raising=False)
    monkeypatch.setattr(script, "mixed", mixed, raising=False)
    found = Found([*parameters])
    parameters[0].add_(1)
    mixed["seen"] = 1
    assert found.names() == {"mixed['seen']"}


def test_modules_that_come_and_go_are_the_script_s_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named() -> dict[str, dict[str, Any]]:
        return dict(roots.modules())

    (tmp_path / "of_a_script.py").write_text("counter = 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "of_a_script" not in named()
    module = importlib.import_module("of_a_script")
    monkeypatch.delitem(sys.modules, "of_a_script")
    assert "of_a_script" not in named()
    monkeypatch.setitem(sys.modules, "of_a_script", module)
    assert named()["of_a_script"] is vars(module)
    again = importlib.util.module_from_spec(module.__spec__)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "of_a_script", again)
    assert named()["of_a_script"] is vars(again) and "torch" not in named() and "json" not in named()


def test_the_main_module_may_be_another_one_later(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, there in (("of_somebody.py", True), ("", False), ("of_another.py", True)):
        main = ModuleType("__main__")
        if name:
            main.__file__ = f"/somewhere/{name}"
        monkeypatch.setitem(sys.modules, "__main__", main)
        assert [names for one, names in roots.modules() if one == "__main__"] == ([vars(main)] if there else [])


def test_what_an_optimizer_was_made_of_is_left_to_it(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(2, 2)
    groups: list[dict[str, Any]] = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias]}]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    state = State()
    state.register("model", model)
    state.register("optimizer", optimizer)
    monkeypatch.setattr(script, "made_of", {"groups": groups, "kept": optimizer.state}, raising=False)
    mine = Census(state.takes_care_of, boundary(), lambda name, stream: None)
    mine.set_up()
    groups[0]["lr"] = 0.5
    optimizer.param_groups[1]["lr"] = 0.7
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    assert not [entry for entry in mine.encoded(None, closely=True) if "census_script" in entry]


def test_a_newcomer_that_joins_late_does_not_take_what_it_was_given_for_new(script: Any) -> None:
    found = Found().census
    found.join({"a": b"1"}, {"b": b"2"}, 1)
    assert (found.top, found.after, found.exact) == ({"a": b"1"}, {"b": b"2"}, True)
    found.join({}, {}, census.CLOSELY)
    assert not found.exact


def test_what_is_kept_by_parameter_is_known_by_its_number(script: Any) -> None:
    def moments() -> dict[Any, torch.Tensor]:
        return {torch.nn.Parameter(torch.zeros(2)): torch.zeros(2), None: torch.zeros(2), 0.5: torch.zeros(2)}

    script.moments = moments()
    found = Found()
    script.moments[next(iter(script.moments))] = torch.ones(2)
    script.moments[None] = None
    script.moments[0.5].add_(2)
    values = found.changed()
    assert {entry.rpartition(":")[2] for entry in values} == {"moments[0 Parameter]", "moments[1 NoneType]", "moments[2 float]"}
    script.moments = moments()
    newcomer = Found().census
    for entry, data in values.items():
        newcomer.load(entry, data)
    assert [value if value is None else value.tolist() for value in script.moments.values()] == [[1, 1], None, [2, 2]]
    for place in ("9" * 5000 + " float", "-1 float", "x float", "", "0 list", "7 float"):
        with pytest.raises(walk.Gone):
            walk.read(walk.Path(("module", HERE), "moments", (("place", place),)), roots.Roots(boundary()).all())
    script.moments = {}
    for entry, data in values.items():
        newcomer.load(entry, data)
    assert script.moments == {}


LARGE: dict[str, Callable[[int], Any]] = {
    "an array": lambda seed: numpy.random.default_rng(seed).standard_normal(1 << 18),
    "a tensor": lambda seed: torch.full((1 << 19,), float(seed)),
    "a list": lambda seed: [str(number + seed) for number in range(leaves.LONGEST + 1)],
}


@pytest.mark.parametrize("kind", LARGE)
def test_what_is_large_and_becomes_another_is_told(script: Any, kind: str) -> None:
    script.trainer.tokens = LARGE[kind](0)
    found = Found()
    assert found.names() == set() and found.census.news() == []
    script.trainer.tokens = LARGE[kind](1)
    assert found.names() == set()
    (text,) = found.census.news()
    assert text.startswith("trainer.tokens (") and "too much" in text


def test_what_is_large_and_changed_in_place_is_told(script: Any) -> None:
    script.trainer.tokens = torch.zeros(1 << 19)
    found = Found()
    script.trainer.tokens[5] = 1
    assert found.names() == set()
    (text,) = found.census.news()
    assert text.startswith("trainer.tokens (") and "too much" in text


def test_the_next_shard_is_told_when_its_transaction_is_over(script: Any) -> None:
    """And no look is due for long."""
    script.trainer.position, script.trainer.tokens = 0, LARGE["an array"](0)
    found = Found()
    for step in range(8):
        found.census.note()
        script.trainer.position += 1
        if step == 6:
            script.trainer.tokens = LARGE["an array"](1)
        found.census.committed()
        assert [text.startswith("trainer.tokens (") for text in found.census.news()] == [True] * (step == 6)


def test_a_redo_finds_what_an_attempt_has_changed_for_the_first_time_beside_that_which_changes(script: Any) -> None:
    trainer = script.trainer
    trainer.position, trainer.shard, trainer.tokens = 0, 0, LARGE["an array"](0)
    found = Found()
    for _ in range(5):
        noted, values = found.census.note(), found.changed()
        trainer.position += 1
        found.census.committed()
    noted, values, tokens = found.census.note(), found.changed(closely=False), trainer.tokens
    trainer.position, trainer.shard, trainer.tokens, trainer.more = 0, 1, LARGE["an array"](1), 1
    script.settings.noise = 0.0  # of an object of which nothing has changed before
    found.census.restore(noted, values)
    assert (trainer.position, trainer.shard, vars(trainer).get("more")) == (5, 0, None) and trainer.tokens is tokens
    assert script.settings.noise == 0.0


def test_what_a_step_leaves_behind_is_not_kept_alive_for_a_redo(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, with their graphs or in an object, and what is too large."""
    monkeypatch.setattr(owners, "HELD", 1 << 22)
    weight = torch.ones(2, requires_grad=True)
    trainer, found, noted = script.trainer, Found(), []
    for _ in range(5):
        noted = [found.census.note()]
        found.changed()
        script.counter += 1
        trainer.position = script.counter
        script.outputs, trainer.outputs = weight * 2, argparse.Namespace(logits=weight * 3)
        trainer.features, trainer.more = torch.zeros(1 << 21), [weight * 4]
        found.census.committed()
    alive = [weakref.ref(thing) for thing in (script.outputs, trainer.outputs.logits, trainer.features, trainer.more[0])]
    noted = [found.census.note()]
    script.outputs = trainer.outputs = trainer.features = trainer.more = None
    gc.collect()
    assert [reference() for reference in alive] == [None] * 4 and noted[0].objects


def test_large_outputs_of_the_first_steps_are_not_kept_alive_either(script: Any) -> None:
    weight = torch.ones(1 << 19, requires_grad=True)
    script.outputs = weight * weight
    torch.autograd.backward(script.outputs.sum())
    found = Found()
    noted, alive = found.census.note(), weakref.ref(script.outputs)
    script.outputs = None
    gc.collect()
    assert alive() is None and noted.objects


def test_a_redo_finds_what_is_not_carried_over(script: Any) -> None:
    """A survivor's own running loss, say."""
    found = Found()
    for _ in range(5):
        noted, values = found.census.note(), found.changed()
        script.counter += 0.5
        script.history.append(1.0)
        found.census.committed()
    for entry in found.changed(closely=False):
        found.census.leave(entry)
    assert found.names(closely=False) == set()
    noted, values = found.census.note(), found.changed(closely=False)
    script.counter += 0.5
    script.history.append(1.0)
    found.census.restore(noted, values)
    assert script.counter == 2.5 and script.history == [1.0] * 5


def test_what_outgrows_a_look_is_told(script: Any) -> None:
    found = Found()
    script.history.append(0.5)
    assert found.names() == {"history"} and found.census.news() == []
    script.history += [0.5] * leaves.LONGEST
    assert found.names() == set()
    (text,) = found.census.news()
    assert "history" in text and "too much" in text


def test_of_what_is_long_only_a_part_is_looked_at(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    room = leaves.Room(leaves.ITEMS)
    assert leaves.is_leaf([object()] * (leaves.LONGEST + 1), room) and room.items == leaves.ITEMS  # by a mark only
    assert not leaves.is_leaf(([0, 1],) * (leaves.ITEMS // 2), room) and room.items == 0
    assert leaves.is_leaf({n: [n] for n in range(leaves.ITEMS // 4)}, room) and room.items < -leaves.ITEMS // 3
    monkeypatch.setattr(script, "dataset", [script.Trainer() for _ in range(leaves.LONGEST + 1)], raising=False)
    found = walk.look(roots.Roots(boundary()).all(), lambda thing: False)
    assert found.beyond is None and found.objects < leaves.LONGEST


def test_frames_that_run_are_looked_at_behind_modules_that_hold_too_much(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MOST", 200)
    monkeypatch.setattr(script, "models", [script.Trainer() for _ in range(300)], raising=False)
    best = 0
    found = walk.look(roots.Roots(boundary()).all(), lambda thing: False)
    assert (
        found.beyond is not None and found.beyond.name == "models" and any(entry.endswith(":best") for entry in found.leaves) and not best
    )


def test_what_several_frames_reach_is_known_by_the_outermost(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer whose loop is in one method, and whose evaluation is called from another one."""
    monkeypatch.delattr(script, "trainer")
    monkeypatch.delattr(script, "alias")
    found, seen = Found(), list[set[str]]()

    def names() -> set[str]:
        return {entry.partition("frame:")[2] for entry in found.census.encoded(None, True) if "self" in entry or "number" in entry}

    class Trainer:
        def __init__(self) -> None:
            self.device_of_rank, self.smooth = 3, 0.0

        def train(self) -> None:
            found.census.set_up()
            self.run_epoch()
            seen.append(names())
            self.evaluate()

        def run_epoch(self) -> None:
            seen.append(names())
            self.smooth = 0.5
            seen.append(names())

        def evaluate(self) -> None:
            number = 1
            seen.append(names())
            number += self.device_of_rank
            seen.append(names())

    Trainer().train()
    here = "test_census.py:test_what_several_frames_reach_is_known_by_the_outermost.<locals>.Trainer"
    smooth, number = f"{here}.train:self.smooth", f"{here}.evaluate:number"
    assert seen == [set(), {smooth}, {smooth}, {smooth}, {smooth, number}]


def test_the_ends_of_loops_are_kept_of_some(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found()
    monkeypatch.setattr(census, "ENDS", 2)
    for loop in range(1, 5):  # the first one was passed by before anything had changed
        script.counter = loop
        found.census.at_end(loop)
    values = [[decode(decode(data)[2])[0] for entry, data in end.items() if entry.endswith(":counter")] for end in found.census.ends]
    assert values == [[], [], [], [3], [4]]
    script.history += [0.5] * 4000
    found.census.at_end(5)
    assert found.census.ends[5] == {}


def test_a_look_has_a_bound(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found()
    monkeypatch.setattr(walk, "MOST", 3)
    found.names()
    (text,) = found.census.news()
    assert "more than can be looked at" in text


def test_only_the_first_set_up_counts(script: Any) -> None:
    """It is called in front of each loop and transaction, on a newcomer at the same first one."""
    found = Found()
    script.counter += 1
    found.census.set_up()
    assert found.names() == {"counter"}


def test_locals_of_frames_that_call_are_set(script: Any) -> None:
    found = Found(set_up=False)

    def train() -> tuple[int, int]:
        best, inner = 0, 0

        def bump() -> None:
            nonlocal inner
            inner += 1

        found.census.set_up()
        best += 1
        bump()
        given = {entry: data for entry, data in found.census.encoded(None, True).items() if "train" in entry}
        assert {entry.rpartition(":")[2] for entry in given} == {"best", "inner"}
        best, inner = 10, 10
        for entry, data in given.items():
            found.census.load(entry, data)
        return best, inner

    assert train() == (1, 1)
