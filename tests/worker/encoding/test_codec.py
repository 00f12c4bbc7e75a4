"""Values of a state as bytes: what was written can be read, also at the limits, and what could not be read is never written."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.message_texts import refused

from understudy.messages import encoding
from understudy.worker.encoding.codec import DEPTH, PLAIN_DEPTH, Unencodable, decode, encode

WRAPPINGS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda value: (value,),
    "frozenset": lambda value: frozenset([value]),
    "ordered dict": lambda value: OrderedDict([("key", value)]),
    "list": lambda value: [value],
    "dict": lambda value: {"key": value},
}
PLAIN = ("list", "dict")

numbers = (
    st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.none()
    | st.complex_numbers(allow_nan=False)
)
keys = st.text(max_size=5) | st.binary(max_size=5) | st.integers()
hashable = st.recursive(
    numbers | keys, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=8
)
values = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
        | st.sets(hashable, max_size=3)
    ),
    max_leaves=20,
)


def nested(wrappings: list[str], leaf: Any) -> Any:
    for name in wrappings:
        leaf = WRAPPINGS[name](leaf)
    return leaf


@settings(deadline=None)
@given(values)
def test_what_was_written_can_be_read(value: Any) -> None:
    there = decode(encode(value))
    assert there == value
    assert type(there) is type(value)
    assert encode(there) == encode(value)


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(WRAPPINGS)), max_size=3 * DEPTH))
def test_whatever_lies_in_what_it_is_refused_or_can_be_read(wrappings: list[str]) -> None:
    if "frozenset" in wrappings:  # which only takes what can be hashed
        wrappings = [name for name in wrappings if name in ("tuple", "frozenset")]
    value = nested(wrappings, 1)
    try:
        data = encode(value)
    except Unencodable:
        assert sum(name not in PLAIN for name in wrappings) > DEPTH
    else:
        assert decode(data) == value


@pytest.mark.parametrize("kind", ["tuple", "frozenset", "ordered dict"])
def test_the_deepest_value_can_be_read_on_any_thread_and_a_deeper_one_is_not_written(kind: str) -> None:
    value = nested([kind] * DEPTH, 1)
    data = encode(value)
    assert decode(data) == value
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(decode, data).result() == value
    for more in (1, 170):
        with refused(Unencodable, encoding.NESTED_TOO_DEEP, deepest=32):
            encode(nested([kind] * (DEPTH + more), 1))
    assert encode(value) == data, "a refusal leaves nothing behind"


@pytest.mark.parametrize("kind", PLAIN)
def test_the_same_of_plain_lists_and_dicts(kind: str) -> None:
    value = nested([kind] * PLAIN_DEPTH, 1)
    assert decode(encode(value)) == value
    with refused(Unencodable, encoding.LISTS_TOO_DEEP, deepest=500):
        encode(nested([kind] * 4000, 1))


@pytest.mark.parametrize("leaf", [1, [], {}, (), (1,), torch.zeros(1)], ids=repr)
@pytest.mark.parametrize("kind", PLAIN)
def test_the_last_one_that_is_written_can_be_read(kind: str, leaf: Any) -> None:
    """Wherever msgpack's own limits are."""
    for depth in range(PLAIN_DEPTH, 4000):
        try:
            data = encode(nested([kind] * depth, leaf))
        except Unencodable:
            break
        decode(data)


def test_the_deepest_of_all() -> None:
    value = nested((["list"] * (PLAIN_DEPTH - 1) + ["tuple"]) * DEPTH, 1)
    with ThreadPoolExecutor(1) as thread:
        data = thread.submit(encode, value).result()
        there = thread.submit(decode, data).result()
    assert encode(there) == data  # comparing such values is more than Python can do


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, 10**5000, ["x", ("\udfff",)]], ids=["text", "key", "number", "in a tuple"])
def test_a_value_without_an_encoding_is_reported(value: Any) -> None:
    with refused(Unencodable, encoding.BEYOND_ENCODING):
        encode(value)


def test_tensors_and_arrays_in_nested_values() -> None:
    value = nested(["tuple"] * (DEPTH - 1), {"tensor": torch.arange(6).reshape(2, 3), "array": numpy.arange(3.0)})
    there = decode(encode(value))
    for _ in range(DEPTH - 1):
        there = there[0]
    assert torch.equal(there["tensor"], torch.arange(6).reshape(2, 3))
    assert there["array"].tolist() == [0.0, 1.0, 2.0]


def test_a_counter_stays_one_whatever_its_order() -> None:
    """As MultiStepLR keeps its milestones."""
    counts = Counter({30: 1, 80: 2})
    found = decode(encode({"milestones": counts}))["milestones"]
    assert type(found) is Counter and found == counts
    assert encode(counts) == encode(Counter({80: 2, 30: 1}))
