"""Probe packets: what was not made with the token, or for these addresses, is refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.network.packets import SIZE, Codec, Kind, Malformed, Packet, Unauthenticated, question

TOKEN, OTHER = "a secret of this test", "another secret of it"
HERE, THERE = "10.1.0.1", "10.1.0.2"


def test_a_packet_arrives_as_it_was_sent() -> None:
    for packet in (question(), question(1 << 31), Packet(Kind.ANSWER, os.urandom(16), 5)):
        assert Codec([TOKEN]).read(Codec([TOKEN]).packed(packet, HERE, THERE), HERE, THERE) == packet


def test_no_two_questions_are_equal() -> None:
    assert len({question() for _ in range(1000)}) == 1000


@pytest.mark.parametrize("sender, receiver", [(THERE, HERE), ("10.2.0.1", "10.2.0.2"), (HERE, "10.1.0.3")])
def test_a_packet_that_was_reflected_or_moved_is_refused(sender: str, receiver: str) -> None:
    data = Codec([TOKEN]).packed(question(), HERE, THERE)
    with pytest.raises(Unauthenticated):
        Codec([TOKEN]).read(data, sender, receiver)


def test_a_question_is_no_answer() -> None:
    data = bytearray(Codec([TOKEN]).packed(question(), HERE, THERE))
    data[4] = Kind.ANSWER
    with pytest.raises(Unauthenticated):
        Codec([TOKEN]).read(bytes(data), HERE, THERE)


def test_tokens_are_replaced_one_host_after_the_other() -> None:
    old, both, new = Codec([OTHER]), Codec([TOKEN, OTHER]), Codec([TOKEN])
    packet = question()
    assert both.read(old.packed(packet, HERE, THERE), HERE, THERE) == packet
    assert new.read(both.packed(packet, HERE, THERE), HERE, THERE) == packet
    with pytest.raises(Unauthenticated):
        old.read(new.packed(packet, HERE, THERE), HERE, THERE)


def test_the_token_is_not_in_the_packet() -> None:
    assert TOKEN.encode() not in Codec([TOKEN]).packed(question(), HERE, THERE)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((Malformed, Unauthenticated)):
        Codec([TOKEN]).read(data, HERE, THERE)


@given(st.integers(0, SIZE - 1), st.integers(1, 255))
def test_every_changed_byte_is_noticed(place: int, change: int) -> None:
    data = bytearray(Codec([TOKEN]).packed(question(), HERE, THERE))
    data[place] ^= change
    with pytest.raises((Malformed, Unauthenticated)):
        Codec([TOKEN]).read(bytes(data), HERE, THERE)
