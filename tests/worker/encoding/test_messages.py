"""Messages between workers: they arrive as they were sent, or are refused with a message."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.message_texts import refused

from understudy.messages import encoding
from understudy.worker.encoding import messages
from understudy.worker.encoding.codec import encode
from understudy.worker.encoding.messages import (
    VERSION,
    Announced,
    AwaitedCall,
    Boundary,
    BuddyCopy,
    CallSequences,
    Compared,
    CopyDigests,
    DataPosition,
    DonorState,
    DrilledCollective,
    DrilledMoment,
    FirstStepStatus,
    GroupMembers,
    HandedAgain,
    JobProgress,
    LastResult,
    MemoryDescription,
    PeerAddress,
    PeerMessage,
    Placed,
    RecordedCollective,
    SetupRecord,
    SharedObject,
    StateDigests,
    TensorDescription,
    pack,
    unpack,
)
from understudy.worker.errors import BadMessage

MOMENT = TensorDescription("float32", [3, 4], [4, 1], [Placed("shard", dimension=1), Placed("partial", reduction="sum")], "p", "cpu")
STATE = StateDigests(["p", "m"], [(1 << 64) - 1, 0], [1], {1: 0}, {"train": ["p"]})
COPY = BuddyCopy(
    *(4, [0, 3, 1], 3, {"torch": b"\0\1"}),
    Boundary(0, 3, DataPosition(2, 1, {"torch": b"\2"}, [b"\3"], {"shard": (1, {2})}), {"numpy": b""}, 7, "a thing"),
    *({"v/value": b"\x90"}, {"b/buffer/x": torch.tensor([1.0, -0.0])}, CopyDigests({"v/value": 1}, {"b/buffer/x": 2}), {"0.3.0": b"\1"}),
)
JOB = JobProgress(
    [1 << 62, 0, 0],
    9,
    8,
    1,
    2,
    [3, 8],
    [True, False],
    {"0.-1.0": b"\1"},
    {"p": (0, 0, -1)},
    3,
    100,
    [1],
    True,
    2,
    0,
    {"after train": 0},
    [0],
    [0],
    True,
    {"script:x": b"1"},
    {"script:x": b"2"},
    [{"script:x": b"0"}],
    {"0:loss": b"1"},
)
ALL: list[PeerMessage] = [
    PeerAddress("rack1", "n0", "::1", 65535, b"here", b"\0name", b"token"),
    SetupRecord([RecordedCollective("broadcast_", "0", [("float32", [2])], [torch.ones(2)]), RecordedCollective("barrier", "1", [])], 17),
    MemoryDescription({"o/state/0/exp_avg": MOMENT}),
    COPY,
    HandedAgain(b"", b"x"),
    LastResult(3, b"x"),
    JOB,
    DonorState(9, 8, {"p": MOMENT}, STATE, {"v/value": b"\x90"}, [CopyDigests({}, {"p": 1})], [GroupMembers("0", [2, 0])], {"0": 5}, {}),
    DrilledCollective("0", 3, "allreduce_", "reduce_op=0", [("float32", [2])], [17], [("float32", [2])], [torch.tensor([1.0, 2.0])], -1),
    DrilledMoment("end", {"p": 5, "the result of the step": -1}, {"v/value": b"\x90"}, 4, 1, {"0": 5}, 250_000),
    Announced(1, "w4", "allreduce_", "SUM", [("float32", 12)], [], [8, -1], "allreduce (SUM) of float32 (3, 4)"),
    FirstStepStatus(False, [AwaitedCall({0: "first/0/2/0"}, "", True, "barrier")]),
    CallSequences("w4", {"0|1f": ([0, 1], 3, 2**64 - 1)}),
    Compared(
        100,
        STATE,
        {"ddp/0/1": SharedObject((0, 1), "DDP over Net", {"layout": [[0, 1], [2]], "switches": (True, None)})},
        [GroupMembers("tp", [0, 1])],
    ),
]


def same(one: Any, other: Any) -> bool:
    if is_dataclass(one):
        return type(one) is type(other) and all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and one.numpy().tobytes() == other.numpy().tobytes()
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: PeerMessage) -> None:
    assert same(unpack(type(message), pack(message)), message)


def test_every_message_has_an_example_here() -> None:
    parts = {Placed, TensorDescription, GroupMembers, CopyDigests, StateDigests, SharedObject, DataPosition, Boundary, RecordedCollective}
    parts |= {AwaitedCall}
    assert {type(message) for message in ALL} | parts == set(PeerMessage.__subclasses__())


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_field_too_many_or_too_few_or_of_another_type_is_refused(message: PeerMessage) -> None:
    kind, there = type(message), vars(message)
    for wrong in ({**there, "more": 1}, *({**there, name: -1.5} for name in there)):  # no field is a fraction
        with refused(BadMessage, encoding.MALFORMED_MESSAGE, expected=kind.__name__):
            unpack(kind, encode([VERSION, kind.__name__, wrong]))
    every: Any = kind
    for name in (field.name for field in fields(every) if field.default is MISSING and field.default_factory is MISSING):
        with refused(BadMessage, encoding.MALFORMED_MESSAGE, expected=kind.__name__):
            unpack(kind, encode([VERSION, kind.__name__, {key: value for key, value in there.items() if key != name}]))


def test_numbers_are_not_taken_from_texts_and_texts_not_from_bytes() -> None:
    with refused(BadMessage, encoding.MALFORMED_MESSAGE, expected="PeerAddress", place="port"):
        unpack(PeerAddress, encode([VERSION, "PeerAddress", {**vars(ALL[0]), "port": "65535"}]))
    with refused(BadMessage, encoding.MALFORMED_MESSAGE, expected="PeerAddress", place="host"):
        unpack(PeerAddress, encode([VERSION, "PeerAddress", {**vars(ALL[0]), "host": b"::1"}]))


def test_another_version_and_another_message_are_named() -> None:
    with refused(BadMessage, encoding.OTHER_VERSION, theirs=7, ours=VERSION):
        unpack(JobProgress, encode([7, "JobProgress", vars(JOB)]))
    with refused(BadMessage, encoding.OTHER_MESSAGE, found="HandedAgain", expected="JobProgress"):
        unpack(JobProgress, pack(HandedAgain(b"", b"")))


@given(st.one_of(st.binary(max_size=60), st.integers(0, 200).map(lambda at: pack(JOB)[:at])))
def test_whatever_comes_is_a_message_or_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        unpack(JobProgress, data)


def test_checkers_are_built_in_time() -> None:
    messages.prepare()
    assert {type(message) for message in ALL} <= messages._adapters.keys()
