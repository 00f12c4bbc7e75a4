"""Makes a drawn script that fails smaller, for its reader. Each attempt is a real job, so there are few (`ATTEMPTS`).

First only the states that are wrong are kept, then one of them, then one kill; then the layout, the loop and the model become the simplest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from tests.conformance.fuzz.composing import LAYOUTS, LOOPS, MODELS, NAMES, Drawn
from tests.conformance.scripts import phases

ATTEMPTS = 6


def shrunk(drawn: Drawn, wrong: Collection[str], fails: Callable[[Drawn], bool]) -> Drawn:
    """Return the smallest script that was found to fail. `wrong`: the names of its states that are wrong; empty: not known."""
    kept = tuple(hidden for name, hidden in drawn.names.items() if name in wrong) or drawn.hidden
    left, smallest = ATTEMPTS, drawn
    if kept != drawn.hidden:
        left -= 1
        if fails(smaller := replace(drawn, hidden=kept)):
            smallest = smaller
    for part in ("hidden", "kills", "layout", "loop", "model"):
        for smaller in _smaller(smallest, part):
            if not left:
                return smallest
            left -= 1
            if fails(smaller):
                smallest = smaller
                break
    return smallest


def _smaller(drawn: Drawn, part: str) -> Iterator[Drawn]:
    if part == "hidden" and len(drawn.hidden) > 1:
        yield from (replace(drawn, hidden=(hidden,)) for hidden in drawn.hidden[: len(NAMES)])
    elif part == "kills" and len(phases(drawn.kills)) > 1:
        yield from (replace(drawn, kills=tuple(kills)) for kills in phases(drawn.kills))
    elif part == "layout" and drawn.layout != LAYOUTS[0]:
        yield replace(drawn, layout=LAYOUTS[0])
    elif part == "loop" and drawn.loop != LOOPS[0]:
        yield replace(drawn, loop=LOOPS[0])
    elif part == "model" and drawn.model != MODELS[0]:
        yield replace(drawn, model=MODELS[0])
