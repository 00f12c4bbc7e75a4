"""The results of transactions, by place (`loops`): a newcomer that passes one that is over returns its result again, without running it.

In a loop of the job those of the current iteration are kept. Outside of such loops a newcomer runs the script's own code from its
start, and passes every transaction there, so all are needed; but they go with every vote, so their number and bytes are bounded. Of the
oldest only those that are None are still known then, which need no room. The first other one that is dropped is reported, because from
then on a loss ends the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from understudy.messages import script
from understudy.worker.encoding.codec import Unencodable, decode, encode
from understudy.worker.encoding.messages import ScriptPosition, name_of_place
from understudy.worker.errors import UnderstudyError
from understudy.worker.participant import Participant, Step

MOST = 1000  # results outside of loops
ROOM = 8 << 20  # bytes of them
_GONE = "gone"  # alongside places: the last one whose result, which was not None, is not kept any more
_NONE_BEFORE = "none before"  # alongside places: of these and earlier ones those that returned None are not kept
_NO_PLACE: ScriptPosition = [-1, -1, -1]


class Results(Participant):
    """Keeps the results. `replaced`: places whose result came from another rank."""

    def __init__(self, tell: Callable[[str], None] = lambda text: None) -> None:
        """`tell`: called with warnings for the user."""
        self.replaced: list[str] = []
        self._tell = tell
        self._outside: dict[str, bytes] = {}  # the oldest first; b"": it cannot be handed over
        self._nones: dict[str, bytes] = {}  # of them those that are None
        self._size = 0
        self._gone: ScriptPosition = _NO_PLACE
        self._none_before: ScriptPosition = _NO_PLACE
        self._here: dict[str, Any] = {}  # of one iteration
        self._iteration: ScriptPosition = []  # loop and iteration of these

    def committed(self, step: Step) -> None:
        self.keep(step.place, step.result)

    def keep(self, place: ScriptPosition, result: Any) -> None:
        if self._iteration != place[:2]:
            self._here = {}
            self._iteration = place[:2]
        if place[1] >= 0:
            self._here[name_of_place(place)] = result
            return
        data = b""
        with suppress(Unencodable):
            data = encode(result)
        (self._nones if result is None else self._outside)[name_of_place(place)] = data
        if len(self._nones) > MOST:
            oldest = next(iter(self._nones))
            del self._nones[oldest]
            self._none_before = _place(oldest)
        self._size += len(data) if result is not None else 0
        while len(self._outside) > MOST or (self._size > ROOM and len(self._outside) > 1):
            self._drop()

    def _drop(self) -> None:
        """Drop the oldest one that is not None."""
        oldest = next(iter(self._outside))
        self._size -= len(self._outside.pop(oldest))
        if self._gone == _NO_PLACE:
            self._tell(script.RESULTS_DROPPED(most=MOST, mebibytes=ROOM >> 20))
        self._gone = _place(oldest)

    def encoded(self, place: ScriptPosition | None = None) -> dict[str, bytes]:
        """Return those that can be handed over; with a copy of the transaction at `place`, only those that go with it."""
        found = {**self._outside, **self._nones}
        for name, before in ((_GONE, self._gone), (_NONE_BEFORE, self._none_before)):
            if before != _NO_PLACE:
                found[name] = encode(before)
        if place is None or self._iteration == place[:2]:
            for name, result in self._here.items():
                with suppress(Unencodable):
                    found[name] = encode(result)
        return found

    def at(self, place: ScriptPosition) -> bytes | None:
        """Return the result at `place`, encoded; None if it is not known, or cannot be handed over."""
        key = name_of_place(place)
        if place[1] < 0:
            return self._outside.get(key) or self._nones.get(key) or None
        with suppress(Unencodable):
            return encode(self._here[key]) if key in self._here else None
        return None

    def adopt(self, place: ScriptPosition, others: Mapping[str, bytes]) -> None:
        """Adopt results, on a newcomer that has not been in the iteration of `place`: a later one may ask it for them."""
        if place[1] >= 0 and self._iteration != place[:2]:
            start = name_of_place(place[:2]) + "."
            self._here = {name: decode(data) for name, data in others.items() if name.startswith(start)}
            self._iteration = place[:2]

    def is_known(self, place: ScriptPosition, *kept: Mapping[str, bytes]) -> bool:
        """Return whether one of these has the result at `place`."""
        return any(results.get(name_of_place(place)) for results in kept)

    def of_lost(
        self, place: ScriptPosition, copied: Mapping[str, bytes], others: Mapping[str, bytes], returns_nothing: bool = False
    ) -> tuple[bool, Any]:
        """Return whether the result at `place` is known, and the result: from the lost rank's copy, else from another rank's. The latter is
        noted, except for None as the result of a function that `returns_nothing`.

        Raises `UnderstudyError` if it is not kept any more.
        """
        key = name_of_place(place)
        if data := copied.get(key):
            return True, decode(data)
        if data := others.get(key):
            result = decode(data)
            if result is not None or not returns_nothing:
                self.replaced.append(key)
            return True, result
        if place[1] >= 0 or key in copied:
            return False, None
        if place <= _place_in(copied, _GONE):
            raise UnderstudyError(script.RESULT_GONE(place=place))
        return place <= _place_in(copied, _NONE_BEFORE), None


def _place_in(results: Mapping[str, bytes], name: str) -> ScriptPosition:
    return list(decode(results[name])) if name in results else _NO_PLACE


def _place(name: str) -> ScriptPosition:
    return list(map(int, name.split(".")))
