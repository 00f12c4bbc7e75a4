"""Iterators over loaders that the job owns: a script calls `next` on one where it likes, before a step, after it or inside.

Its position is followed like a random stream (`state.streams`): it goes with the vote, is handed over again after it, is restored by a
redo, and a newcomer goes on from the same place. Nothing is drawn when a position is set: only the next call of `next` goes there. It
draws the last batch before that place again and compares its digest, which detects a loader that does not give the same data twice.

Known limits: what is drawn inside a step is drawn again from the start of its epoch if the step is redone (a plain DataLoader without
workers skips that). A sampler of the script's own that counts its draws counts those, too. All iterators must be made before the first
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from understudy.messages import loading
from understudy.worker.data.loaders import LoaderSource, leave_if_data_process_lost
from understudy.worker.encoding.contents import content_of
from understudy.worker.encoding.messages import Boundary, DataPosition, pack, unpack
from understudy.worker.errors import UsageError
from understudy.worker.state.streams import Randomness


class LoaderIterator(Iterator[Any]):
    """Made by `job.iterator`. Raises `StopIteration` at the end of its loader, unless it repeats it."""

    def __init__(self, name: str, source: LoaderSource, randomness: Randomness, tell: Callable[[str], None]) -> None:
        """`tell`: called with warnings for the user."""
        self._name = name
        self._source = source
        self._randomness = randomness
        self._tell = tell
        self._count = 0
        self._at = b""  # the top of the last draw; b"": nothing was drawn yet
        self._stands = b""  # the position of its source

    def read(self) -> bytes:
        """Return its position."""
        return self._at

    def restore(self, at: bytes) -> None:
        """Go on from that position."""
        self._at = at

    def __next__(self) -> Any:
        if self._stands != self._at:
            self._go()
        batch, self._at = self._draw()
        self._stands = self._at
        return batch

    def _draw(self) -> tuple[Any, bytes]:
        top = Boundary(-1, self._count, self._source.position(), self._randomness.random())

        def new_epoch() -> None:
            top.position, top.streams = self._source.position(), self._randomness.random()

        try:
            batch = self._source.draw(new_epoch)
        except RuntimeError as error:
            leave_if_data_process_lost(error)
            raise
        self._count += 1
        content = content_of(batch)
        top.batch, top.opaque = content.all, content.opaque
        if content.opaque:
            self._tell(loading.OPAQUE_DRAW(iterator=self._name, type=content.opaque))
        return batch, pack(top)

    def _go(self) -> None:
        """Go to the restored position. Raises `UsageError` if the loader does not give there what it gave before."""
        self._stands = self._at
        if not self._at:
            self._count = 0
            self._source.go_to(DataPosition())
            return
        wanted, now = unpack(Boundary, self._at), self._randomness.random()
        self._source.go_to(wanted.position)
        found = self._draw_again(wanted)
        if found != wanted.batch and self._source.go_again(wanted.position):
            found = self._draw_again(wanted)
        self._randomness.restore(now)
        if found != wanted.batch or wanted.opaque:
            raise UsageError(loading.OTHER_DRAW(iterator=self._name, draw=wanted.iteration, found=found, wanted=wanted.batch))

    def _draw_again(self, wanted: Boundary) -> int:
        self._randomness.restore(wanted.streams)
        self._count = wanted.iteration
        return unpack(Boundary, self._draw()[1]).batch
