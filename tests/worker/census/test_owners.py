"""What an attempt changes for the first time, long after the set-up, and what it leaves half full."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Any

import torch
from tests.worker.census.census_found import Found, script

from understudy.worker.census.census import CLOSELY

__all__ = ["script"]


class _Experts:
    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []
        self.counts: dict[str, int] = {}
        self.seen: set[int] = set()
        self.last: deque[int] = deque([1, 2], maxlen=2)
        self.micro = 8


def _begun(found: Found) -> Any:
    """As of the begin of a transaction that is not one of the first."""
    for _ in range(CLOSELY):
        found.census.note()
    found.changed()
    return found.census.note()


def test_a_redo_finds_what_an_attempt_has_filled_as_it_was(script: Any) -> None:
    script.experts, script.collected = _Experts(), []
    found = Found()
    noted = _begun(found)
    losses, weight = script.experts.losses, torch.ones(2, requires_grad=True)
    losses.append(weight.sum())
    script.collected.append(weight * 2)
    script.experts.counts["first"] = 1
    script.experts.seen.add(3)
    script.experts.last.append(3)
    found.census.restore(noted, {})
    assert script.experts.losses is losses and losses == [] and script.collected == []
    assert (script.experts.counts, script.experts.seen, script.experts.last) == ({}, set(), deque([1, 2]))
    assert script.experts.last.maxlen == 2


def test_a_redo_finds_an_attribute_as_it_was(script: Any) -> None:
    script.experts = _Experts()
    noted = _begun(found := Found())
    script.experts.micro //= 2
    script.experts.new = 1
    found.census.restore(noted, {})
    assert script.experts.micro == 8 and not hasattr(script.experts, "new")


class _Losses(list[float]):
    def clear(self) -> None:
        raise AssertionError("no one may ask")


def test_a_redo_takes_away_what_the_first_attempt_has_made(script: Any) -> None:
    script.losses = _Losses([1.0])
    found = Found()
    noted = found.census.note()
    script.losses.append(2.0)
    script.losses.best = 2.0
    found.census.restore(noted, {})
    assert script.losses == [1.0] and not hasattr(script.losses, "best")


def test_an_ordered_dict_stays_whole(script: Any) -> None:
    script.order = OrderedDict(a=1, b=2)
    noted = _begun(found := Found())
    script.order["c"] = 3
    script.order.move_to_end("a")
    found.census.restore(noted, {})
    assert list(script.order.items()) == [("a", 1), ("b", 2)]


def test_what_a_thread_shares_is_left_alone(script: Any) -> None:
    class Prefetch:
        def __init__(self) -> None:
            self.lock, self.items, self.ready = threading.Lock(), deque[int](), False

    script.prefetch = Prefetch()
    noted = _begun(found := Found())
    script.prefetch.items.append(1)
    script.prefetch.ready = True
    found.census.restore(noted, {})
    assert list(script.prefetch.items) == [1] and script.prefetch.ready


def test_what_changed_before_the_begin_stays(script: Any) -> None:
    script.experts = _Experts()
    found = Found()
    _begun(found)
    script.experts.micro = 4
    script.experts.losses.append(torch.ones(1))
    noted = found.census.note()
    script.experts.micro = 2
    script.experts.losses.clear()
    found.census.restore(noted, {})
    assert script.experts.micro == 4 and len(script.experts.losses) == 1


def test_a_graph_is_not_kept_for_a_redo(script: Any) -> None:
    script.experts, script.collected = _Experts(), []
    found = Found()
    script.experts.losses.append(torch.ones(2, requires_grad=True) * 2)
    noted = _begun(found)
    assert noted.first_changes is not None
    assert not any(container is script.experts.losses for container, _ in noted.first_changes.owners.contents)


def test_a_redo_finds_a_tensor_as_it_was_that_had_never_changed(script: Any) -> None:
    script.scale, script.masks = torch.ones(2), [torch.zeros(3), torch.zeros(3)]
    noted = _begun(found := Found())
    scale, mask = script.scale, script.masks[1]
    scale.data = torch.full((2,), 5.0)
    mask[1] = 7
    found.census.restore(noted, {})
    assert script.scale is scale and scale.tolist() == [1, 1] and mask.tolist() == [0, 0, 0]
    assert not [one for one in found.census.listed(()) if one.kind == "unseen"]


def test_a_tensor_is_put_back_as_often_as_it_has_to_be(script: Any) -> None:
    script.bank = torch.zeros(3)
    _begun(found := Found())
    for _ in range(2):
        noted = found.census.note()
        script.bank[1] = 7
        found.census.restore(noted, {})
        assert script.bank.tolist() == [0, 0, 0]
    assert not [one for one in found.census.listed(()) if one.kind == "unseen"]


def test_a_variable_that_a_transaction_has_captured_is_put_back(script: Any) -> None:
    losses: list[float] = []

    def step() -> None:
        losses.append(1.0)

    found = Found(set_up=False)
    found.census.transaction(step)
    found.census.set_up()
    noted = _begun(found)
    step()
    found.census.restore(noted, {})
    assert losses == []


def test_what_cannot_be_restored_is_reported(script: Any) -> None:
    """It has changed since the last walk, so the value at the begin of the attempt is unknown."""
    script.scale = torch.ones(2)
    found = Found()
    _begun(found)
    script.scale.add_(1)
    noted = found.census.note()
    script.scale.add_(1)
    found.census.restore(noted, {})
    assert [one.name for one in found.census.listed(()) if one.kind == "unseen"] == ["scale"]
