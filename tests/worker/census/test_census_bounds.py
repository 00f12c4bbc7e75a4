"""The bounds of a walk over what a script can reach, what it does not keep, and that it reports what it has left out."""

from __future__ import annotations

import argparse
import gc
import weakref
from typing import Any

import numpy
import pytest
import torch
from tests.message_texts import has
from tests.worker.census.census_found import LARGE, Found, boundary, script

from understudy.messages import census as notices
from understudy.worker.census import baseline, census, leaves, owners, roots, walk
from understudy.worker.encoding.codec import decode

__all__ = ["script"]


def test_watched_values_are_small(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found()
    monkeypatch.setattr(census, "TOTAL", 200)
    script.history += [0.5] * 50
    script.counter = 1
    assert found.names() == {"counter"}
    (text,) = found.census.news()
    assert has(text, notices.TOO_LARGE_VALUE, shown="history") and "counter" not in text


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_value_that_is_replaced_is_reported(script: Any, kind: str) -> None:
    script.trainer.tokens = LARGE[kind](0)
    found = Found()
    assert found.names() == set() and found.census.news() == []
    script.trainer.tokens = LARGE[kind](1)
    assert found.names() == set()
    (text,) = found.census.news()
    assert has(text, notices.TOO_LARGE_TENSOR if kind == "a tensor" else notices.TOO_LARGE_VALUE, shown="trainer.tokens")


def test_a_large_value_that_changes_in_place_is_reported(script: Any) -> None:
    script.trainer.tokens = torch.zeros(1 << 19)
    found = Found()
    script.trainer.tokens[5] = 1
    assert found.names() == set()
    (text,) = found.census.news()
    assert has(text, notices.TOO_LARGE_TENSOR, shown="trainer.tokens")


@pytest.mark.parametrize("kind", ["an array", "a tensor through numpy"])
def test_one_item_of_a_large_value_is_enough(script: Any, kind: str) -> None:
    script.trainer.tokens = numpy.zeros(1 << 18) if kind == "an array" else torch.zeros(1 << 19)
    found = Found()
    numpy.asarray(script.trainer.tokens)[99] = 1
    assert found.names() == set()
    (text,) = found.census.news()
    assert has(text, notices.TOO_LARGE_VALUE if kind == "an array" else notices.TOO_LARGE_TENSOR, shown="trainer.tokens")


def test_of_values_that_are_large_together_a_sample_is_read(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "WHOLE", 3 << 20)
    script.trainer.first, script.trainer.second = numpy.zeros(1 << 18), numpy.zeros(1 << 18)
    found = Found()
    for one in (script.trainer.first, script.trainer.second):
        one[99] = 1
    assert found.names() == set() and found.census.listed(())
    large = [one.name for one in found.census.listed(()) if one.kind == "large"]
    assert len(large) == 1


def test_the_next_shard_is_reported_when_its_transaction_is_over(script: Any) -> None:
    """And no look is due for long."""
    script.trainer.position, script.trainer.tokens = 0, LARGE["an array"](0)
    found = Found()
    for step in range(8):
        found.census.note()
        script.trainer.position += 1
        if step == 6:
            script.trainer.tokens = LARGE["an array"](1)
        found.census.committed()
        assert [has(text, notices.TOO_LARGE_VALUE, shown="trainer.tokens") for text in found.census.news()] == [True] * (step == 6)


def test_what_a_step_leaves_is_not_kept_alive_for_a_redo(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, with their graphs or in an object, and what is too large."""
    monkeypatch.setattr(owners, "MOST_KEPT", 1 << 22)
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


def test_what_outgrows_a_walk_is_reported(script: Any) -> None:
    found = Found()
    script.history.append(0.5)
    assert found.names() == {"history"} and found.census.news() == []
    script.history += [0.5] * leaves.LONGEST
    assert found.names() == set()
    (text,) = found.census.news()
    assert has(text, notices.TOO_LARGE_VALUE, shown="history")


def test_of_a_long_list_only_a_part_is_read(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    room = leaves.Room(leaves.ITEMS)
    assert leaves.is_leaf([object()] * (leaves.LONGEST + 1), room) and room.items == leaves.ITEMS  # by a mark only
    assert not leaves.is_leaf(([0, 1],) * (leaves.ITEMS // 2), room) and room.items == 0
    assert leaves.is_leaf({n: [n] for n in range(leaves.ITEMS // 4)}, room) and room.items < -leaves.ITEMS // 3
    monkeypatch.setattr(script, "dataset", [script.Trainer() for _ in range(leaves.LONGEST + 1)], raising=False)
    found = walk.look(roots.Roots({boundary()}).all(), lambda thing: False)
    assert found.beyond is None and found.objects < leaves.LONGEST


def test_running_frames_are_searched_after_modules_that_have_too_much(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MOST", 200)
    monkeypatch.setattr(script, "models", [script.Trainer() for _ in range(300)], raising=False)
    best = 0
    found = walk.look(roots.Roots({boundary()}).all(), lambda thing: False)
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
    here = "test_census_bounds.py:test_what_several_frames_reach_is_known_by_the_outermost.<locals>.Trainer"
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
    assert has(text, notices.LOOK_ENDED)
