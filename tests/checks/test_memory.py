"""`checks.memory`: the pattern, the report about memory that loses it, and that the node keeps enough memory."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.checks import memory
from understudy.checks.base import Verdict
from understudy.checks.memory import BLOCK, MULTIPLIER, RESERVE, Memory, Numbers, write, wrong_bits
from understudy.checks.options import MIB, Options
from understudy.common.room import Room
from understudy.messages import node_checks

FEW = Options(memory_most=2 * BLOCK // MIB)
WORDS = (1 << 15) * 2 + 7  # not a multiple of the words that are written at a time


@pytest.fixture
def block() -> Numbers:
    return np.zeros(WORDS, np.uint64)


@pytest.mark.parametrize("complement", [False, True])
def test_each_word_has_its_number_times_a_constant(block: Numbers, complement: bool) -> None:
    write(block, 1 << 40, complement)
    for index in (0, 1, 12345, WORDS - 1):
        wanted = ((1 << 40) + index) * MULTIPLIER % (1 << 64)
        assert int(block[index]) == (wanted ^ (1 << 64) - 1 if complement else wanted)
    assert wrong_bits(block, 1 << 40, complement) == (0, 0)
    assert wrong_bits(block, 1 << 40, not complement) == (WORDS, (1 << 64) - 1)


@pytest.mark.parametrize("index", [0, 40000, WORDS - 1])
def test_a_flipped_bit_is_found(block: Numbers, index: int) -> None:
    write(block, 9, False)
    block[index] ^= np.uint64(1 << 63)
    block[5] ^= np.uint64(2)
    assert wrong_bits(block, 9, False) == (2, 1 << 63 | 2)


def test_what_was_meant_for_another_address_is_found(block: Numbers) -> None:
    write(block, 0, False)
    block[4096:8192] = block[:4096]
    assert wrong_bits(block, 0, False)[0] == 4096


def test_memory_that_holds_passes() -> None:
    found = Memory(FEW).run()
    assert (found.verdict, found.detail, found.notes) == (Verdict.PASSED, node_checks.MEMORY_HOLDS(size=128), ())
    assert {figure.name: figure.unit for figure in found.figures} == {"size": "MiB", "written": "GB/s", "read": "GB/s"}


@pytest.mark.parametrize(("complement", "words"), [(False, "the pattern"), (True, "the complement")])
def test_memory_that_does_not_hold_fails(complement: bool, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit that is stuck, so only one of both patterns shows it."""

    def spoilt(block: Numbers, first: int, now: bool) -> None:
        write(block, first, now)
        if now is complement and first == BLOCK // 8:
            block[99] ^= np.uint64(1 << 7)

    monkeypatch.setattr(memory, "write", spoilt)
    found = Memory(FEW).run()
    assert found.verdict is Verdict.FAILED
    assert found.detail == node_checks.MEMORY_WRONG(words=1, block=1, blocks=2, pattern=words, bits=0x80)


def test_how_much_is_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def size(available: int, **options: float) -> int:
        monkeypatch.setattr(memory, "room", lambda: Room(available, 1 << 40, "this host"))
        return Memory(Options(**options))._size()  # type: ignore[arg-type]

    assert size(1 << 30) == 1 << 28  # a quarter
    assert size(1 << 30, memory_share=0.9) == (1 << 30) - RESERVE
    assert size(1 << 36) == 2048 * MIB
    assert size(1 << 36, memory_most=100) == 100 * MIB
    assert size(RESERVE) == 0


def test_too_little_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "room", lambda: Room(100 * MIB, 1 << 40, "control group job"))
    assert Memory(FEW).missing() == node_checks.TOO_LITTLE_MEMORY(least=64, free=100)
    monkeypatch.setattr(memory, "room", lambda: Room(1 << 40, 1 << 40, "this host"))
    assert Memory(FEW).missing() == ""


def test_it_stops_where_memory_gets_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1 << 34, 1 << 34, RESERVE + BLOCK - 1]
    monkeypatch.setattr(memory, "room", lambda: Room(left.pop(0), 1 << 40, "this host"))
    found = Memory(Options(memory_most=4 * BLOCK // MIB)).run()
    assert (found.verdict, found.detail) == (Verdict.PASSED, node_checks.MEMORY_HOLDS(size=64))
    assert found.notes == (node_checks.MEMORY_SCARCE(done=1, wanted=4, size=64),)


def test_that_nothing_could_be_tried_out_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1 << 34, RESERVE]
    monkeypatch.setattr(memory, "room", lambda: Room(left.pop(0), 1 << 40, "this host"))
    assert Memory(FEW).run().verdict is Verdict.FAILED
