"""What is read of a rank's state in every step: small, but all of it, whatever optimizers and scripts keep there."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy
import pytest
import torch
import xxhash
from tests.message_texts import refused

from understudy.messages import encoding
from understudy.messages import script as messages
from understudy.worker.encoding.canonical import canonical
from understudy.worker.encoding.codec import Unencodable, encode
from understudy.worker.encoding.digests import digest, flat_bytes
from understudy.worker.errors import UsageError
from understudy.worker.guards.arguments import versions
from understudy.worker.state.registry import State


class Keeping(torch.optim.SGD):
    """An optimizer that keeps a count for each parameter, and one value for all of them, as some do."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        kept: Any = self.state
        kept["for all"] = kept.get("for all", torch.zeros(1)) + 1
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1


def test_what_an_optimizer_keeps_in_addition_to_tensors() -> None:
    model = torch.nn.Linear(2, 2)
    state, optimizer = State(), Keeping(model.parameters(), lr=0.1, momentum=0.9)
    state.register("optimizer", optimizer)
    first = state.encoded_values()
    assert first == state.encoded_values(closely=False)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    counted = state.encoded_values(closely=False)  # sees the counts, and with them everything
    assert first != counted == state.encoded_values()
    optimizer.step()
    assert state.encoded_values() != counted
    state.load_value("optimizer/settings", counted["optimizer/settings"])
    assert [optimizer.state[parameter]["count"] for parameter in model.parameters()] == [1, 1]
    assert dict(optimizer.state)["for all"] == 1  # type: ignore[index]
    snapshot = state.snapshot()
    optimizer.param_groups[0]["lr"] = 0.5
    state.restore(snapshot)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert [optimizer.state[parameter]["count"] for parameter in model.parameters()] == [1, 1]


def test_what_an_optimizer_keeps_for_all_parameters_is_found_once_and_read_from_then_on() -> None:
    state, optimizer = State(), torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    state.register("optimizer", optimizer)
    first = state.encoded_values(closely=False)
    kept: Any = optimizer.state
    kept["for all"] = 1
    found = state.encoded_values()
    assert found != first
    kept["for all"] = 2
    assert found != state.encoded_values(closely=False) != first


def test_values_of_parameters_in_the_middle_of_a_model_alone_are_found() -> None:
    layers = [torch.nn.Linear(2, 2) for _ in range(3)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    state, optimizer = State(), Keeping(parameters, lr=0.1)
    state.register("optimizer", optimizer)
    first = state.encoded_values(closely=False)
    kept: Any = optimizer.state
    kept[parameters[2]]["count"] = 1  # the others are frozen
    assert state.encoded_values(closely=False) != first


def test_a_redo_leaves_alone_what_changes_only_after_the_vote() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    state, optimizer = State(), torch.optim.SGD([parameter], lr=0.1)
    state.register("optimizer", optimizer)
    kept: Any = optimizer.state
    kept[parameter]["Q"] = held = [torch.ones(1)]
    snapshot = state.snapshot()
    optimizer.param_groups[0]["lr"] = 0.5
    state.restore(snapshot)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert kept[parameter]["Q"] is held


def test_keys_of_any_type_have_one_order() -> None:
    keys = [frozenset({1, 2}), frozenset({1}), (1, "a"), None, 2, "b"]
    assert encode(canonical(dict.fromkeys(keys, 0))) == encode(canonical(dict.fromkeys(reversed(keys), 0)))


def test_encoding_inside_an_encoding_and_after_an_error() -> None:
    value = {"a": [torch.ones(3), {"b": (1, {2, 3}, torch.zeros(2, dtype=torch.int64))}], "big": 1 << 70}
    before = encode(value)
    for wrong in ([object()], {"x": (1, [object()])}):
        with pytest.raises(Unencodable):
            encode(wrong)
        assert encode(value) == before
    assert len(encode(torch.zeros(1 << 19))) > 1 << 21
    assert encode(value) == before
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: encode(value), range(200))) == {before}


def test_dicts_have_one_order() -> None:
    one: dict[Any, Any] = {"b": 1, "a": [{2: "x", 1: "y", "z": ({"d": 1, "c": 2},)}]}
    other: dict[Any, Any] = {"a": [{"z": ({"c": 2, "d": 1},), 1: "y", 2: "x"}], "b": 1}
    assert repr(canonical(one)) == repr(canonical(other)) == "{'a': [{1: 'y', 2: 'x', 'z': ({'c': 2, 'd': 1},)}], 'b': 1}"


class Batch(NamedTuple):
    inputs: Any


def test_changes_of_arguments_are_seen_in_whatever_holds_them() -> None:
    tensors = [torch.zeros(2) for _ in range(5)]
    arguments = [
        (tensors[0], [tensors[1], {"x": tensors[2]}], None, 3, "text"),
        {"named": Batch(tensors[3]), "ordered": OrderedDict(one=numpy.zeros(3)), "array": Batch(numpy.zeros(3))},
        OrderedDict(one=tensors[4]),
    ]
    before = versions(arguments)
    assert len(before) == len(tensors)
    for tensor in tensors:
        tensor.add_(1)
        after = versions(arguments)
        assert after != before
        before = after
    with torch.inference_mode():
        assert versions([torch.zeros(2)]) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool])
def test_digests_are_of_the_bytes_whatever_way_they_are_read(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    for shape in ((), (0,), (7,), (3, 5)):
        tensor = torch.randint(0, 2, shape, generator=generator).to(dtype)
        expected = xxhash.xxh3_64(f"{dtype}{tuple(shape)}".encode() + flat_bytes(tensor).numpy().tobytes()).intdigest()
        assert digest(tensor) == expected
        if tensor.dim() == 2:
            assert digest(tensor.t().contiguous().t()) != digest(tensor.t().contiguous())
            assert digest(tensor[:, 1:].contiguous()) != expected


def test_a_disabled_scaler_is_registered_like_an_enabled_one() -> None:
    state = State()
    state.register("off", torch.amp.GradScaler("cpu", enabled=False))
    state.register("on", torch.amp.GradScaler("cpu", init_scale=8.0))
    snapshot = state.snapshot()
    assert set(snapshot.scalers) == {"on"}
    state.restore(snapshot)
    state.load_value("off/value", state.encoded_values()["off/value"])


def test_what_could_not_be_read_is_refused_when_it_is_registered() -> None:
    class Deep:
        def state_dict(self) -> dict[str, Any]:
            value: Any = 1
            for _ in range(200):
                value = (value,)
            return {"deep": value}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise AssertionError("never")

    with refused(UsageError, messages.UNMOVABLE_STATE, name="deep", reason=encoding.NESTED_TOO_DEEP(deepest=32)):
        State().register("deep", Deep())
