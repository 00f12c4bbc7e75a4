"""Messages on the wire: what comes out is what went in, however it was put into frames, and nothing else is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.message_texts import refused

from understudy.common.page_view import UNKNOWN, Activity, PageView
from understudy.core import commands, events
from understudy.links.messages import (
    FRAME,
    LIMIT,
    BadMessage,
    Hello,
    Pages,
    Part,
    ToWorkers,
    decode,
    decode_untrusted,
    encode,
    encode_all,
    pack,
    unfold,
)
from understudy.messages import wire
from understudy.messages.base import Message

names = st.sampled_from(["w0", "w1", "w2"])
numbers = st.integers(0, 2)
ranks = st.lists(numbers, max_size=2).map(tuple)
any_command: st.SearchStrategy[commands.Command] = st.one_of(
    st.builds(commands.StartWorker, st.just("n0"), names, st.booleans()),
    st.builds(commands.KillWorker, names, st.just("lost")),
    st.builds(commands.Abort, names, numbers, st.just("h:1"), ranks, st.text(max_size=5)),
    st.builds(commands.Publish, names, numbers, st.just("h:1"), ranks),
    st.builds(commands.Pause, names, numbers, st.just("h:1"), ranks),
    st.builds(commands.Recover, names, numbers, numbers, st.just("redo"), st.just("h:1"), ranks, ranks, ranks),
    st.builds(commands.Release, names, st.integers(0, 1)),
    st.builds(commands.Assign, names, numbers, numbers, st.booleans(), st.booleans(), st.just("h:1"), st.just({"RANK": "0"})),
    st.builds(commands.EndJob, numbers, st.just("over")),
)


@given(st.lists(any_command, max_size=12))
def test_commands_come_out_of_their_frames_as_they_went_in(reported: list[commands.Command]) -> None:
    lines = [line for frame in encode_all(reported) for line in frame.split("\n")]
    assert [message for line in lines for message in unfold(decode(line))] == reported


def test_one_line_reaches_all_workers_of_a_node() -> None:
    reported = [commands.Abort(f"w{number}", 1, "h:1", (9,), "lost") for number in range(8)]
    (frame,) = encode_all([*reported, commands.KillWorker("w9", "lost")])
    together, alone = map(decode, frame.split("\n"))
    assert isinstance(together, ToWorkers) and together.workers == tuple(command.worker for command in reported)
    assert alone == commands.KillWorker("w9", "lost")


@given(st.lists(st.integers(1, FRAME + 10), max_size=8))
def test_frames_are_small_and_lose_nothing(sizes: list[int]) -> None:
    lines = [str(number) * size for number, size in enumerate(sizes)]
    frames = list(pack(lines))
    assert [line for frame, _ in frames for line in frame.split("\n")] == lines
    assert [count for _, count in frames] == [len(frame.split("\n")) for frame, _ in frames]
    assert all(len(frame) <= FRAME or count == 1 for frame, count in frames)


def test_what_is_not_for_several_workers_is_refused() -> None:
    kill, nested = encode(commands.KillWorker("", "x")), encode(ToWorkers(("w0",), "{}"))
    for inner, why in ((kill, wire.NOT_FOR_SEVERAL), (nested, wire.NOT_FOR_SEVERAL), ("{}", wire.NOT_A_MESSAGE), ("", wire.NOT_A_MESSAGE)):
        with refused(BadMessage, why):
            unfold(decode(encode(ToWorkers(("w0", "w1"), inner))))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", wire.NOT_A_MESSAGE),
        ("7", wire.NOT_A_MESSAGE),
        ("[" * 100_000, wire.NOT_A_MESSAGE),
        ('{"type": "NoSuchThing"}', wire.NOT_A_MESSAGE),
        ('{"type": "WorkerWarm"}', wire.MALFORMED),
        ('{"worker": "w0", "store": "h:1", "type": "WorkerWarm"}', wire.NOT_A_MESSAGE),  # the type comes first
        ('{"type": "WorkerWarm", "worker": "w0", "store": "h:1"} {}', wire.MALFORMED),
        ('{"type": "WorkerWarm", "worker": 7, "store": "h:1"}', wire.MALFORMED),
        ('{"type": "Pages", "node": "n0", "clock": 1.0, "pages": {"w0": [1, 2.0]}}', wire.MALFORMED),
        ('{"type": "Pages", "node": "n0", "clock": 1.0, "pages": {"w0": [1, 1.0, 99, 0, 0, 1.0, 0, 0.0]}}', wire.MALFORMED),
        ('{"type": "Pages", "node": "n0", "clock": 1.0, "pages": {"w0": 5}}', wire.MALFORMED),
        (json.dumps({"type": "Notice", "worker": "w0", "rank": 0, "text": "x" * LIMIT}), wire.TOO_LONG),
        (b"\xff\xfe", wire.NOT_A_MESSAGE),
    ],
)
def test_anything_else_is_refused(text: str | bytes, why: Message) -> None:
    with refused(BadMessage, why):
        decode(text)


def test_pages_are_tuples_on_the_wire() -> None:
    pages = Pages("n0", 3.0, {"w0": PageView(9, 1.0, Activity.RUNNING, 8, 8, 2.0, 40, 0.5, 3, 90, 700, 20, 10)})
    assert decode(encode(pages)) == pages
    assert json.loads(encode(pages))["pages"]["w0"] == [9, 1.0, 4, 8, 8, 2.0, 40, 0.5, 3, 90, 700, 20, 10, 0.0, 0, ""]


@pytest.mark.parametrize("more", [[], [3], [3, 90, 700, 20, 10, 60.0, 1, "at a line", 36.6, "and more"]])
def test_pages_of_another_version_are_shorter_or_longer(more: list[Any]) -> None:
    text = json.dumps({"type": "Pages", "node": "n0", "clock": 3.0, "pages": {"w0": [9, 1.0, 4, 8, 8, 2.0, 40, 0.5, *more]}})
    known = more[:8] or [UNKNOWN]
    assert decode(text) == Pages("n0", 3.0, {"w0": PageView(9, 1.0, Activity.RUNNING, 8, 8, 2.0, 40, 0.5, *known)})


def test_text_that_python_made_of_undecodable_bytes_survives() -> None:
    failed = events.ScriptFailed("w0", 0, 3, "OSError", "no file \udcff.txt \U0001f525\n")
    heard = events.ScriptFailed("w0", 0, 3, "OSError", "no file \\udcff.txt \U0001f525\n")  # as it can be shown and written
    assert decode(encode(failed)) == heard
    assert decode(encode(failed).encode()) == heard


@pytest.mark.parametrize("said", ["0", "-1", "null"])
def test_a_process_id_that_is_not_known_is_none(said: str) -> None:
    """An earlier version writes 0. The journal gets None."""
    message, written = decode_untrusted(f'{{"type":"WorkerStarted","worker":"w0","node":"n0","pid":{said}}}')
    assert message == events.WorkerStarted("w0", "n0", None)
    assert json.loads(written)["pid"] is None
    assert decode(written) == message


def test_a_process_id_arrives_as_it_is() -> None:
    for pid in (1, 4711):
        assert decode(encode(events.WorkerStarted("w0", "n0", pid))) == events.WorkerStarted("w0", "n0", pid)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Hello("n0", "here", -1, "", {}, ()), wire.SLOTS_OUT_OF_RANGE),
        (Hello("n0", "here", 1 << 40, "", {}, ()), wire.SLOTS_OUT_OF_RANGE),
        (Hello("n0", "here", 1, "", {}, (Part("job", 0, -7, 0),)), wire.PARTS_OUT_OF_RANGE),
        (Hello("n0", "here", 1, "", {str(n): "x" * 1000 for n in range(5)}, ()), wire.NODE_TOO_LONG),
        (Hello("n0", "\u00e9" * 160, 1, "\u00e9" * 160, {str(n): "\u00e9" * 160 for n in range(3)}, ()), wire.NODE_TOO_LONG),
    ],
)
def test_a_node_that_no_service_takes_is_refused(node: Hello, message: Message) -> None:
    with refused(BadMessage, message):
        decode(encode(node))
