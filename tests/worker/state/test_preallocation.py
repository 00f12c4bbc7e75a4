"""Work that workers do during waits: digests of state that stays as it is, and memory for state that will come."""

from __future__ import annotations

from dataclasses import replace

import torch

from understudy.worker.encoding.messages import MemoryDescription
from understudy.worker.state.digest_cache import DigestCache
from understudy.worker.state.preallocation import Preallocation
from understudy.worker.state.registry import State


def trained() -> State:
    """A model whose optimizer has moments."""
    state = fresh()
    for parameter in state.modules["model"].parameters():
        parameter.grad = torch.ones_like(parameter)
    state.optimizers["optimizer"].step()
    return state


def fresh() -> State:
    torch.manual_seed(0)
    state, model = State(), torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    state.register("model", model)
    state.register("optimizer", torch.optim.AdamW(model.parameters()))
    return state


def test_known_digests_equal_computed_ones_and_are_taken_once() -> None:
    state = trained()
    known = DigestCache(state)
    known.make(lambda: False)
    tensors = dict(state.parameters()) | dict(state.moments())
    taken = known.take(tensors)
    assert taken.keys() == tensors.keys()
    assert taken == State.digests_of(tensors, {})
    assert State.digests_of(tensors, {}, taken) == taken
    assert known.take(tensors) == {}


def test_what_has_changed_since_is_not_known() -> None:
    state = trained()
    known = DigestCache(state)
    known.make(lambda: False)
    changed, replaced, *rest = state.modules["model"].parameters()
    with torch.no_grad():
        changed.add_(1)
    replaced.data = replaced.data.clone()
    taken = known.take(dict(state.parameters()))
    assert taken.keys() == {f"model/parameter/{name}" for name in ("1.weight", "1.bias")} and len(rest) == 2


def test_it_stops_when_the_decision_is_there() -> None:
    state = trained()
    known, asked = DigestCache(state), iter([False, False, True])
    known.make(lambda: next(asked))
    assert len(known.take(dict(state.parameters()))) == 2


def test_memory_that_is_ready_is_used() -> None:
    donor, newcomer = trained(), fresh()
    missing = Preallocation(newcomer)
    described = Preallocation(donor).describe()
    assert len(described.moments) == 12  # a step and two moments for each of four parameters
    missing.prepare(described, lambda: False)
    assert dict(newcomer.moments()) == {}, "nothing is set ahead"
    ready = {entry: tensor.data_ptr() for entry, (_, tensor) in missing._ready.items()}
    missing.make(described.moments)
    made = dict(newcomer.moments())
    assert {entry: tensor.data_ptr() for entry, tensor in made.items()} == ready
    assert newcomer.descriptions(made) == described.moments
    assert missing._ready == {}


def test_memory_that_does_not_fit_any_more_is_allocated_again() -> None:
    """The rank has changed its optimizer since."""
    donor, newcomer = trained(), fresh()
    missing = Preallocation(newcomer)
    described = Preallocation(donor).describe()
    other = {e: replace(moment, shape=[7], stride=[1]) for e, moment in described.moments.items() if e.endswith("exp_avg")}
    missing.prepare(MemoryDescription(other), lambda: False)
    missing.make(described.moments)
    assert newcomer.descriptions(dict(newcomer.moments())) == described.moments
