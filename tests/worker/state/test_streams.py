"""Whatever is drawn or set, a capture of the streams equals the state of their generators."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.message_texts import refused

from understudy.messages import loading
from understudy.worker.data.loops import restore_streams
from understudy.worker.encoding.messages import BuddyCopy, CopyDigests
from understudy.worker.errors import StateMismatch
from understudy.worker.state import rng_fingerprint as unmoved
from understudy.worker.state.streams import Randomness

mtrand: Any = numpy.random.mtrand
saved: dict[str, object] = {}
OWN = torch.Generator()


def again_with_gauss() -> None:
    """The same Mersenne Twister as now, with a normal number kept for the next call, or without the one that is."""
    state: Any = numpy.random.get_state()
    kind, key, position, has_gauss, gauss = state
    numpy.random.set_state((kind, key, position, 1 - has_gauss, gauss or 0.5))


MOVES: list[Callable[[], object]] = [
    random.random,
    lambda: random.gauss(0, 1),
    lambda: random.seed(1),
    lambda: random.shuffle([1, 2, 3]),
    lambda: random.setstate(random.getstate()),
    lambda: numpy.random.rand(3),
    numpy.random.randn,
    lambda: numpy.random.seed(1),
    lambda: numpy.random.binomial(10, 0.5),
    again_with_gauss,
    lambda: saved.update(python=random.getstate(), numpy=numpy.random.get_state()),
    lambda: (random.setstate(saved["python"]), numpy.random.set_state(saved["numpy"])) if saved else None,  # type: ignore[arg-type]
    lambda: torch.rand(3),
    lambda: torch.manual_seed(1),
    lambda: torch.randn(1),
    lambda: torch.randn(1, dtype=torch.float64),
    lambda: torch.randn(100),
    lambda: torch.randperm(5),
    lambda: torch.empty(700).uniform_(),
    lambda: torch.rand(2, generator=OWN),
    lambda: torch.rand(624),
    lambda: torch.rand(1248, generator=OWN),
    lambda: random.getrandbits(624 * 32),
    lambda: numpy.random.bytes(624 * 4),
    lambda: torch.set_rng_state(torch.get_rng_state()),
    lambda: None,
]


@given(st.lists(st.integers(0, len(MOVES) - 1), max_size=30))
def test_a_capture_is_the_state_of_the_generators(moves: list[int]) -> None:
    kept = Randomness()
    kept.generators["own"] = OWN
    for move in moves:
        MOVES[move]()
        fresh = Randomness()
        fresh.generators["own"] = OWN
        assert kept.capture() == fresh.capture()


def test_what_has_not_moved_is_the_same_object() -> None:
    kept = Randomness()
    before = kept.capture()
    assert kept.capture() is before
    torch.rand(1)
    after = kept.capture()
    assert after is not before
    assert after["python"] is before["python"]


def test_a_generator_that_comes_later_is_captured() -> None:
    kept = Randomness()
    kept.capture()
    kept.adopt([OWN])
    assert OWN.get_state().numpy().tobytes() in kept.capture().values()


def test_restored_streams_are_captured() -> None:
    kept = Randomness()
    before = kept.capture()
    drawn = random.gauss(0, 1), numpy.random.randn(), torch.rand(1)
    assert kept.capture() != before
    kept.restore(before)
    assert kept.capture() == before == Randomness().capture()
    assert (random.gauss(0, 1), numpy.random.randn(), torch.rand(1)) == drawn


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (random.Random, random.Random.random),
        (numpy.random.default_rng, numpy.random.Generator.random),
        (numpy.random.RandomState, numpy.random.RandomState.rand),
        (lambda seed: torch.Generator().manual_seed(seed), lambda generator: torch.rand(1, generator=generator)),
    ],
)
def test_a_stream_that_only_the_first_set_up_has_made_is_needed_if_something_uses_it(
    make: Callable[[int], Any], draw: Callable[[Any], object]
) -> None:
    first, newcomer, generator = Randomness(), Randomness(), make(3)
    first.find("shuffler (__main__)", generator)

    def copy() -> BuddyCopy:
        streams = first.capture()
        return BuddyCopy(0, [0, 0, 0], 0, streams, None, {}, {}, CopyDigests({}, {}), unused=first.unused(streams))

    assert len(copy().unused) == 1
    restore_streams(newcomer, copy(), 1)
    draw(generator)
    with refused(StateMismatch, loading.OTHER_STREAMS, rank=1):
        restore_streams(newcomer, copy(), 1)
    newcomer.find("shuffler (__main__)", make(4))
    restore_streams(newcomer, copy(), 1)


def test_another_bit_generator_is_read_every_time() -> None:
    numpy.random.randn()
    assert unmoved.marks_of_numpy()() is not None
    before = mtrand.get_bit_generator()
    mtrand.set_bit_generator(numpy.random.MT19937(5))
    try:
        kept = Randomness()
        assert kept.capture() == Randomness().capture()
        mtrand.set_bit_generator(numpy.random.MT19937(6))
        assert kept.capture() == Randomness().capture()
        mtrand.set_bit_generator(numpy.random.PCG64(5))
        assert unmoved.marks_of_numpy()() is None
    finally:
        mtrand.set_bit_generator(before)


@pytest.mark.parametrize("mark", [unmoved.marks_of_python(), unmoved.marks_of_numpy(), unmoved.marks_of_torch(OWN)])
def test_this_interpreter_shows_it(mark: Callable[[], object]) -> None:
    assert mark() is not None
    assert mark() == mark()


def test_where_not_every_move_is_seen_it_is_not_relied_on() -> None:
    assert not unmoved._tells(lambda: ("always the same",), lambda: None)
    assert not unmoved._tells(lambda: None, lambda: None)
    assert unmoved._words_of_torch(OWN) is not None


def test_another_default_device_changes_nothing() -> None:
    unmoved._torch_tells.cache_clear()
    with torch.device("meta"):
        assert unmoved._torch_tells() is not None


def test_an_exception_while_streams_are_read_loses_no_change() -> None:
    kept = Randomness()
    kept.capture()
    torch.rand(1), numpy.random.rand()
    read = kept._sources["numpy"].read

    def interrupted() -> bytes:
        kept._sources["numpy"] = kept._sources["numpy"]._replace(read=read)
        raise KeyboardInterrupt

    kept._sources["numpy"] = kept._sources["numpy"]._replace(read=interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.capture()
    assert kept.capture() == Randomness().capture()


def test_a_generator_of_another_kind_is_read_every_time() -> None:
    kept = Randomness()
    kept.numpy_generators["own"] = numpy.random.default_rng(1)
    before = kept.capture()
    assert kept.capture() is before
    kept.numpy_generators["own"].random()
    after = kept.capture()
    assert [name for name in before if before[name] != after[name]] == ["numpy generator/own"]
