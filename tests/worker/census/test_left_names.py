"""Names that loops leave: noted, given to a newcomer's frame, bounded."""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any

import pytest
import torch
from tests.message_texts import refused

from understudy.messages import encoding
from understudy.worker.census import left_names
from understudy.worker.census.left_names import put, script_frame, take
from understudy.worker.errors import BadMessage
from understudy.worker.guards.loop_variables import ReadAfter

NAMES = ("loss", "batch", "model", "unset")


def frame(**values: Any) -> FrameType:
    """Of a module with these names."""
    names = {"here": sys._getframe, **values}
    exec("frame = here()", names)
    found = names["frame"]
    assert isinstance(found, FrameType)
    return found


def left(loop: int = 0, **values: Any) -> tuple[dict[str, bytes], list[str]]:
    """What a rank notes that has set these in its loop."""
    found: dict[str, bytes] = {}
    set_there = {"loss": 0.5, "batch": [torch.ones(2), torch.zeros(1)], "model": object(), **values}
    return found, take(found, loop, frame(**set_there), NAMES, NAMES)


def test_a_newcomer_has_in_its_frame_what_its_rank_had() -> None:
    own, missed = left()
    assert missed == ["model"] and own.keys() == {"0:loss", "0:batch"}

    def newcomer() -> tuple[float, list[torch.Tensor]]:
        assert put(0, sys._getframe(), ReadAfter(NAMES, NAMES), own, {}, []) == []
        if not own:
            loss, batch = 0.0, [torch.ones(1)]
        return loss, batch

    loss, batch = newcomer()
    assert loss == 0.5 and [part.tolist() for part in batch] == [[1, 1], [0]]
    script = frame()
    assert put(0, script, ReadAfter(NAMES, NAMES), own, {}, []) == []
    assert script.f_globals["loss"] == 0.5 and not {"model", "unset"} & script.f_globals.keys()


MINE = torch.full((2,), 7.0)
THEIRS = [torch.ones(2), torch.zeros(1)]


@pytest.mark.parametrize(
    ("read_after", "own", "last", "doubtful", "loss", "batch"),
    [
        (ReadAfter(NAMES, NAMES, "", ("batch",)), {}, [MINE], ["loss"], 0.25, MINE),
        (ReadAfter(NAMES, NAMES, "", ("batch",)), {}, [], ["loss", "batch"], 0.25, THEIRS),
        (ReadAfter(NAMES, NAMES, "", ("loss", "batch"), in_parts=True), {}, [(1, MINE)], [], 1, MINE),
        (ReadAfter(NAMES, NAMES, "", ("loss", "batch"), in_parts=True), {}, [{"a": 1}], ["loss", "batch"], 0.25, THEIRS),
        (ReadAfter(NAMES, NAMES, "", ("loss",)), left(loss=0.75)[0], [1], [], 0.75, THEIRS),  # the loop may have bound it again
        (ReadAfter(NAMES, NAMES), left(loop=4, loss=0.75)[0], [], ["loss", "batch"], 0.25, THEIRS),
    ],
)
def test_a_name_that_was_not_handed_over_is_taken_from_another_rank_and_reported_unless_it_is_drawn_again(
    read_after: ReadAfter, own: dict[str, bytes], last: list[Any], doubtful: list[str], loss: float, batch: Any
) -> None:
    script = frame()
    assert put(0, script, read_after, own, left(loss=0.25)[0], last) == doubtful
    found = script.f_globals
    assert found["loss"] == loss
    assert found["batch"] is MINE if batch is MINE else [part.tolist() for part in found["batch"]] == [[1, 1], [0]]


def test_of_what_had_a_value_before_the_loop_only_what_cannot_change_is_set() -> None:
    found: dict[str, bytes] = {}
    assert take(found, 0, frame(history=[1.0], best=3.0), ("history", "best"), ()) == [] and found.keys() == {"0:best"}


def test_names_are_bounded_and_of_the_oldest_loops_the_next_known_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_names, "BOUND", 100)
    known: dict[str, bytes] = {}
    for loop in range(20):
        assert take(known, loop, frame(loss=float(loop)), ("loss",), ("loss",)) == []
        assert sum(len(key) + len(data) for key, data in known.items()) <= 100
    assert "19:loss" in known and "0:loss" not in known
    script = frame()
    assert put(0, script, ReadAfter(("loss",)), known, {}, []) == ["loss"]
    assert f"{script.f_globals['loss']:.0f}:loss" == next(iter(known))
    assert take(known, 20, frame(loss=[0.0] * 100), ("loss",), ("loss",)) == ["loss"] and "19:loss" in known


@pytest.mark.parametrize("data", [b"", b"junk", b"\xc1", b"\x93\x01"])
def test_malformed_names_set_nothing(data: bytes) -> None:
    script = frame()
    if data:
        with refused(BadMessage, encoding.MALFORMED_NAME, name="loss"):
            put(0, script, ReadAfter(("loss",)), {"0:loss": data}, {}, [])
    assert put(0, script, ReadAfter(("loss",)), {"x:loss": data, "-1:loss": data, ":loss": data, f"{'9' * 5000}:loss": data}, {}, []) == []
    assert "loss" not in script.f_globals


def test_code_of_libraries_around_the_loop_is_not_the_scripts() -> None:
    innermost = functools.reduce(lambda _, __: script_frame(), [0, 0], None)
    assert innermost is not None and innermost.f_code.co_filename == __file__
    names = {"script_frame": script_frame}
    exec(compile("def inner():\n    return script_frame()", "<a library>", "exec"), names)
    assert names["inner"]() is sys._getframe()
