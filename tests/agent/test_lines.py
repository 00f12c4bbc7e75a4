"""From bytes to lines: whatever is printed comes out once, in order, whole, however it arrives."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from understudy.agent.lines import LONGEST, Lines, printable


def collect(pieces: list[bytes]) -> list[bytes]:
    lines = Lines()
    return [line for piece in pieces for line in lines.feed(piece)] + lines.end()


@given(st.binary(max_size=300).filter(lambda data: b"\r" not in data), st.lists(st.integers(0, 300), max_size=6))
def test_pieces_do_not_matter(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    expected = data.split(b"\n")
    assert collect(pieces) == (expected if expected[-1] else expected[:-1])


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda s: not set(s) & set(b"\r\n")), min_size=1))
def test_of_a_redrawn_line_the_last_state_remains(states: list[bytes]) -> None:
    assert collect([b"\r".join(states) + b"\n"]) == [states[-1]]
    assert collect([state + b"\r" for state in states] + [b"\n"]) == [states[-1]]


def test_windows_line_ends_cut_in_two() -> None:
    assert collect([b"a\r", b"\nb\r\n"]) == [b"a", b"b"]


def test_a_redrawn_line_is_shown_once_a_tick() -> None:
    lines = Lines()
    assert lines.feed(b"1%\r2%\r3%") == []
    assert lines.tick() == [b"2%"]
    assert lines.tick() == [b"3%"]
    assert lines.tick() == []


def test_a_growing_piece_waits_and_a_resting_one_is_shown() -> None:
    lines = Lines()
    lines.feed(b"loading")
    assert lines.tick() == []
    assert lines.tick() == [b"loading"]
    assert lines.feed(b" done\n") == [b" done"]


def test_an_endless_line_is_cut() -> None:
    pieces = collect([b"x" * (3 * LONGEST + 5)])
    assert [len(piece) for piece in pieces] == [LONGEST, LONGEST, LONGEST, 5]


@given(st.binary())
def test_anything_is_printable(data: bytes) -> None:
    text = printable(data)
    assert all(character.isprintable() or character in "\t\x1b" or ord(character) > 0x9F for character in text if character != "\n")
