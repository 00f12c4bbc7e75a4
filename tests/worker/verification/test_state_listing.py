"""The state that a newcomer would get: the list that rank 0 reports, its bounds, and how people and programs see it."""

from __future__ import annotations

import io
from collections.abc import Iterable

import torch
from rich.console import Console
from tests.core.core_job import Job

from understudy.cli import show
from understudy.core import events
from understudy.core.coverage import Replicas
from understudy.core.events import StateItem
from understudy.core.model import JobSpec
from understudy.core.transitions import RefusalReason
from understudy.messages import coverage
from understudy.orchestrator.state_view import state_table
from understudy.worker.state.namespace import Namespace
from understudy.worker.state.registry import State
from understudy.worker.state.unregistered import Item, NoUnregisteredState
from understudy.worker.verification import state_listing
from understudy.worker.verification.state_listing import adopted, items_of, that_fit


class Listing(NoUnregisteredState):
    def __init__(self, *items: Item) -> None:
        super().__init__()
        self.items = list(items)

    def listed(self, known: Iterable[str]) -> list[Item]:
        return self.items


COUNTER = Item("script:module:__main__:counter", "counter", "train.py", "adopted", 3)
NOISE = Item("script:module:__main__:settings.noise", "settings.noise", "train.py", "adopted", 9)
TICKS = Item("", "ticks", "train.py", "moved", 0, "an iterator")


def state(*items: Item) -> State:
    found = State()
    module = torch.nn.Linear(2, 1)
    parts = {"model": module, "track": Namespace(bad=0), "loader": torch.utils.data.DataLoader([1])}  # type: ignore[arg-type]
    for name, thing in {**parts, "draws": torch.Generator()}.items():
        found.names.add(name)
        found.register(name, thing)
    found.randomness.find("rng (__main__)", torch.Generator())
    found.unregistered = Listing(*items)
    return found


def replicas() -> Replicas:
    known = {"model/parameter/weight": (0, 0), "model/parameter/bias": (0, 0), "track/value": (0, 1)}
    return Replicas({**known, COUNTER.entry: (0, 0), NOISE.entry: (0, 1)})


def test_each_registered_name_is_listed_once_and_then_the_rest() -> None:
    found = {item.shown: item for item in items_of(state(TICKS, NOISE, COUNTER), replicas())}
    assert list(found) == ["model", "track", "loader", "draws", "rng", "counter", "settings.noise", "ticks"]
    assert found["model"] == StateItem("model", "", "registered", True, 12)
    assert found["track"].same is False and found["track"].size > 0
    assert found["loader"] == StateItem("loader", "", "registered", None, 0) and found["draws"].kind == "registered"
    assert found["rng"] == StateItem("rng", "__main__", "adopted", None, 0)
    assert found["counter"] == StateItem("counter", "train.py", "adopted", True, 3)
    assert found["settings.noise"] == StateItem("settings.noise", "train.py", "adopted", False, 9)
    assert found["ticks"] == StateItem("ticks", "train.py", "moved", None, 0, "an iterator")


def test_a_long_name_is_cut_and_a_long_list_too() -> None:
    (item,) = [one for one in items_of(state(Item("", "x" * 900, "train.py", "left", 0, "why")), Replicas({})) if one.kind == "left"]
    assert len(item.shown) == state_listing._LONGEST and item.shown.endswith("...")
    few = [item] * 3
    assert that_fit(few) == tuple(few)
    fit = that_fit([item] * 10_000)
    assert 300 < len(fit) < 1000
    assert len(that_fit([StateItem("é" * 200, "", "left", None, 0)] * 10_000)) < len(fit)


def test_the_coverage_notice_has_the_first_adopted_names() -> None:
    assert adopted(state(TICKS), replicas()) == ""
    text = adopted(state(NOISE, COUNTER, TICKS), replicas())
    assert text == coverage.ADOPTED(names="counter, settings.noise (train.py)")
    best = [Item(f"e{number}", f"best{number}", "train.py:main", "adopted", 1) for number in range(4)]
    names = "counter, settings.noise (train.py), best0, best1 (train.py:main) and 2 more"
    assert adopted(state(NOISE, COUNTER, *best), replicas()) == coverage.ADOPTED(names=names)


def test_the_last_message_of_a_member_is_shown() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    empty = state_table(job.machine)
    assert empty == {"job": "job", "step": None, "entries": [], "left_out": 0} and "the state is not known yet" in _shown(dict(empty))
    for step in (1, 2):
        items = (StateItem("counter", "train.py", "adopted", True, 3), StateItem("ticks", "[/]", "moved", None, 0, "an iterator"))
        assert job.submit(events.StateListed("w0", step, items, 7)) == []
    job.submit(events.StateListed("w2", 9, ()))
    assert job.machine.state.refused == {("StateListed", RefusalReason.STATE): 1}
    table = state_table(job.machine)
    assert (table["step"], table["left_out"], [entry["name"] for entry in table["entries"]]) == (2, 7, ["counter", "ticks"])
    assert table["entries"][0] == {"name": "counter", "root": "train.py", "kind": "adopted", "same": True, "bytes": 3, "reason": ""}
    text = _shown(dict(table))
    assert "as of step 2" in text and "[/]" in text and "an iterator" in text and "and 7 more" in text


def _shown(table: dict[str, object]) -> str:
    terminal = io.StringIO()
    Console(file=terminal, width=160).print(show.state_view(table))
    return terminal.getvalue()
