"""A look at what a script can reach: what it finds, what it sets, and that it runs no code of the script."""

from __future__ import annotations

import importlib
import importlib.util
import queue
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.message_texts import has
from tests.worker.census.census_found import HERE, LARGE, Found, boundary, script

from understudy.messages import census as notices
from understudy.worker.census import census, leaves, naming, roots, walk
from understudy.worker.census.census import Census
from understudy.worker.encoding.codec import encode
from understudy.worker.errors import BadMessage
from understudy.worker.state.registry import State

__all__ = ["script"]


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


def test_found_values_are_given_to_another_worker(script: Any) -> None:
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


def test_a_look_makes_no_item_of_a_defaultdict(script: Any) -> None:
    """A meter that a newcomer has not made, because it skips the iterations, must not come into being without its content."""
    script.meters = defaultdict(script.Trainer)
    found = Found()
    script.meters["loss"]._hidden = 7
    given = found.changed()
    newcomer: Any = importlib.reload(script)
    newcomer.meters = defaultdict(newcomer.Trainer)
    mine = Found()
    for entry, data in given.items():
        mine.census.load(entry, data)
    assert any("meters" in entry for entry in given)
    assert not newcomer.meters


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


def test_a_comprehension_that_runs_is_no_scope_to_report(script: Any) -> None:
    found = Found()
    reported = [(found.names(), found.census.news(), (lambda kept: found.census.news())(kept=0)) for _ in range(2)]
    assert reported == [(set(), [], [])] * 2


def test_an_iterator_that_moves_is_reported(script: Any) -> None:
    found = Found()
    assert found.census.news() == []
    next(script.ticks)
    assert found.names() == set() and found.census.news() == []  # a newcomer does that, too
    found.census.at_top()
    assert found.names() == set()
    (text,) = found.census.news()
    assert has(text, notices.COUNTER_MOVES, name="ticks") and found.census.news() == []


def test_what_changes_later_has_a_notice_of_its_own(script: Any) -> None:
    script.first, script.second = [queue.Queue() for _ in range(2)]
    found, texts = Found(), []
    for waiting in (script.first, script.second):
        waiting.put(1)
        found.names()
        texts += found.census.news()
        assert found.census.news() == []
    assert [has(text, notices.CHANGES_UNSEEN, shown=f"{name}.queue") for text, name in zip(texts, ("first", "second"), strict=True)]
    assert "first" not in str(texts[1])


def test_the_notices_of_one_kind_are_few(script: Any) -> None:
    waiting = [queue.Queue[int]() for _ in range(2 * naming.NOTICES)]
    for number, one in enumerate(waiting):
        setattr(script, f"waiting{number}", one)
    found, texts = Found(), []
    for one in waiting:
        one.put(1)
        found.names()
        texts += found.census.news()
    assert len(texts) == naming.NOTICES


def test_of_a_hidden_state_whose_history_is_spent_the_values_are_moved(script: Any) -> None:
    found = Found()
    found.census.ignore({"weight"})  # whose gradient is reported
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


def test_a_graph_that_is_kept_from_step_to_step_is_reported(script: Any) -> None:
    weight = torch.ones(2, requires_grad=True)
    script.constant, script.hidden = weight * 2, weight * 3
    found = Found()
    assert found.names() == set() and found.census.news() == []
    script.hidden = weight * 5
    assert found.names() == set() and found.census.news() == []  # in a step there are many
    found.census.at_top()
    (text,) = found.census.news()
    assert has(text, notices.KEEPS_GRAPH, shown="hidden") and "constant" not in text
    assert [item.name for item in found.census.listed([]) if item.kind == "history"] == ["hidden"]


def test_ignored_names_are_neither_taken_nor_reported(script: Any) -> None:
    found = Found()
    found.census.ignore(["counter", "noise", "ticks"])
    script.counter, script.settings.noise = 1, 0.0
    next(script.ticks)
    assert found.names() == set() and found.census.news() == []


def test_registered_things_are_left_to_others(script: Any) -> None:
    found = Found([script.trainer, script.bank, script.alias])
    script.trainer._hidden = 1
    script.bank.add_(1)
    assert found.names() == set()


def test_a_value_that_matters_to_people_only_is_left_and_reported(script: Any) -> None:
    found = Found()
    script.counter = 1
    (entry,) = found.changed()
    assert found.census.leave(entry) and found.names() == set()
    (text,) = found.census.news()
    assert has(text, notices.DIFFERS_BY_RANK, name="counter", shown="counter")
    script.counter = 2
    assert found.names() == set()


def test_a_tensor_is_not_left(script: Any) -> None:
    found = Found()
    script.bank.add_(1)
    (entry,) = found.changed()
    assert not found.census.leave(entry) and found.names() == {"bank"}


def test_a_value_of_another_worker_replaces_no_code(script: Any) -> None:
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
def test_malformed_data_is_reported(script: Any, data: bytes) -> None:
    with pytest.raises(BadMessage):
        Found().census.load("script:module:x:y", data)


def test_a_way_through_modules_and_classes_leads_nowhere(script: Any) -> None:
    found = Found()
    for steps in ([("attribute", "MOST")], [("attribute", "WalkResult"), ("attribute", "beyond")]):
        path = walk.Path(("module", __name__), "walk", tuple(steps))
        found.census.load(path.entry, encode([path.encoded, False, leaves.encoded(1)]))
    assert walk.MOST == 20_000 and walk.WalkResult.beyond is None


def test_a_list_of_registered_things_is_checked_item_by_item(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
    mine = Census(state.takes_care_of, {boundary()}, lambda name, stream: None)
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


def test_a_value_by_parameter_is_known_by_its_number(script: Any) -> None:
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
            walk.read(walk.Path(("module", HERE), "moments", (("place", place),)), roots.Roots({boundary()}).all())
    script.moments = {}
    for entry, data in values.items():
        newcomer.load(entry, data)
    assert script.moments == {}


def test_a_value_by_the_id_of_an_object_is_known_by_its_number(script: Any) -> None:
    mine, others = [torch.ones(1), torch.ones(1)], [torch.ones(1), torch.ones(1)]
    script.sizes = {id(one): 0.0 for one in mine}
    found = Found()
    script.sizes[id(mine[1])] = 2.0
    values = found.changed()
    script.sizes = {id(one): 0.0 for one in others}
    newcomer = Found().census
    for entry, data in values.items():
        newcomer.load(entry, data)
    assert script.sizes == {id(others[0]): 0.0, id(others[1]): 2.0}
    script.sizes[id(script)] = 1.0
    newcomer.encoded(None, closely=True)
    assert [one.name for one in newcomer.listed(()) if one.kind == "unseen"] == ["sizes"]


def test_a_redo_restores_siblings_that_an_attempt_has_changed_for_the_first_time(script: Any) -> None:
    trainer = script.trainer
    trainer.position, trainer.shard, trainer.tokens = 0, 0, LARGE["an array"](0)
    found = Found()
    for _ in range(5):
        noted, values = found.census.note(), found.changed()
        trainer.position += 1
        found.census.committed()
    noted, values, tokens = found.census.note(), found.changed(closely=False), trainer.tokens
    trainer.position, trainer.shard, trainer.tokens, trainer.more = 0, 1, LARGE["an array"](1), 1
    script.settings.noise = 0.0  # an object in which nothing has changed before
    found.census.restore(noted, values)
    assert (trainer.position, trainer.shard, vars(trainer).get("more")) == (5, 0, None) and trainer.tokens is tokens
    assert script.settings.noise == 0.5


def test_a_redo_restores_what_is_not_carried_over(script: Any) -> None:
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


def test_only_the_first_set_up_counts(script: Any) -> None:
    """It is called before each loop and transaction, on a newcomer at the same first one."""
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
