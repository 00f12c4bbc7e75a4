"""Draws scripts: states that are hidden in places, changed in ways at sites, and kills at moments. Equal seeds draw equal scripts.

Places with their ways are dealt from a shuffled deck, so that `USUAL_COUNT` scripts have every one of them at least once. hypothesis draws
everything else. It is asked for two examples of each script, of which the first one is always its simplest.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.conformance.fuzz.composing import (
    EVERY,
    LAYOUTS,
    LOOPS,
    MODELS,
    RANKS,
    READERS,
    SECTION,
    SITES,
    STEPS,
    Drawn,
    Hidden,
    combinations,
)
from tests.conformance.fuzz.places import PLACES, READ
from tests.conformance.scripts import FOLDER, Kill

SEED, COUNT = "UNDERSTUDY_FUZZ_SEED", "UNDERSTUDY_FUZZ_COUNT"  # variables of the environment
USUAL_SEED, USUAL_COUNT = 1, 200
MOMENTS: Mapping[str, tuple[str, ...]] = {
    "in forward": ("forward",),
    "in a collective": ("backward", "reduced"),
    "at the vote": ("vote", "vote copies", "vote agreement"),
    "after the vote": ("vote passed", "apply", "applied"),
    "between two steps": ("between",),
    "in a section": ("evaluation", "section vote", "section vote copies", "section vote agreement", "section vote passed"),
}
FIRST = "in the set-up or the first step"
POINTS_OF_FIRST = ("setup", "forward", "backward")
OF_NEWCOMER = ("transfer", "verify", "verified", "attached")
KILLS = 2  # at most, without those of newcomers
STATES = 5  # of a script

Card = tuple[str, str]  # a place and a way


@st.composite
def kills(draw: st.DrawFn) -> tuple[Kill, ...]:
    found: dict[int, Kill] = {}
    for moment in draw(st.lists(st.sampled_from([FIRST, *MOMENTS]), min_size=1, max_size=KILLS)):
        steps = [0] if moment == FIRST else range(EVERY, STEPS - 1, EVERY) if moment == SECTION else range(1, STEPS - 1)
        if free := [step for step in steps if step not in found]:
            step = draw(st.sampled_from(free))
            point = draw(st.sampled_from(POINTS_OF_FIRST if moment == FIRST else MOMENTS[moment]))
            found[step] = Kill(point, step, draw(st.integers(0, RANKS - 1)))
    ordered = [found[step] for step in sorted(found)]
    last = ordered[-1]
    if [kill.rank for kill in ordered].count(last.rank) == 1 and last.point != "setup" and draw(st.integers(0, 5)) == 0:
        ordered.append(Kill(draw(st.sampled_from(OF_NEWCOMER)), last.step, last.rank))
    return tuple(ordered)


@st.composite
def scripts(draw: st.DrawFn, dealt: tuple[Card, ...]) -> Drawn:
    hidden = [
        Hidden(place, way, draw(st.sampled_from(SITES)) if way != READ else SITES[0], draw(st.sampled_from(READERS)))
        for place, way in dealt
    ]
    layout, loop, model = (draw(st.sampled_from(every)) for every in (LAYOUTS, LOOPS, MODELS))
    return Drawn(tuple(hidden), draw(kills()), layout, loop, model)


def _hands(number: int) -> Iterator[tuple[Card, ...]]:
    """Deal the states of one script after the other: no place twice, because some are one for the whole process."""
    order, deck = random.Random(number), list[Card]()
    while True:
        hand: dict[str, str] = {}
        while len(hand) < STATES:
            if not any(place not in hand for place, _ in deck):
                more = [(place.name, way) for place in PLACES.values() for way in place.ways]
                order.shuffle(more)
                deck += more
            place, way = next(card for card in deck if card[0] not in hand)
            hand[place] = way
            deck.remove((place, way))
        yield tuple(hand.items())


def drawn(count: int, number: int) -> list[Drawn]:
    """Return `count` scripts of the seed `number`; more of them begin with the same ones."""
    return [_drawn(hand, number * 1_000_003 + place) for place, hand in enumerate(itertools.islice(_hands(number), count))]


def _drawn(dealt: tuple[Card, ...], number: int) -> Drawn:
    found: list[Drawn] = []

    @seed(number)
    @settings(max_examples=2, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(scripts(dealt))
    def collect(script: Drawn) -> None:
        found.append(script)

    collect()
    return found[-1]


def of_the_environment() -> tuple[int, int]:
    """Return the number of scripts and the seed."""
    return int(os.environ.get(COUNT, USUAL_COUNT)), int(os.environ.get(SEED, USUAL_SEED))


def write(source: str, path: Path) -> Path:
    """Write a script, and what it imports from the suite's folder next to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in ("_common.py", "_trace.py"):
        target = path.parent / name
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}")
            partial.write_text((FOLDER / name).read_text())
            partial.replace(target)
    path.write_text(source)
    return path


def moment_of(kill: Kill) -> str:
    if kill.of_newcomer:
        return "in a recovery"
    if kill.step == 0 or kill.point == "setup":
        return FIRST
    return next(moment for moment, points in MOMENTS.items() if kill.point in points)


def summary(scripts: list[Drawn]) -> dict[str, Any]:
    """Count what these scripts cover."""
    states = [hidden for script in scripts for hidden in script.hidden]
    return {
        "scripts": len(scripts),
        "states": len(states),
        "places": f"{len({hidden.place for hidden in states})} of {len(PLACES)}",
        "places with ways": f"{len({(hidden.place, hidden.way) for hidden in states})} of {len(list(combinations()))}",
        "sites": sorted({hidden.site for hidden in states if hidden.way != READ}),
        "moments": sorted({moment_of(kill) for script in scripts for kill in script.kills}),
    }
