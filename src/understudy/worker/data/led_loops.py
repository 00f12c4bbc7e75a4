"""`job.lead`: a loop whose owner draws its batches itself, such as a training framework with a data fetcher of its own.

The loop is one of the job like any other: `data.loops` notes the top of each iteration, and a newcomer draws the batch of the iteration
that it enters again, and proves that it is the same one. Only the drawing is the owner's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

from understudy.messages import script
from understudy.worker.data.loaders import Counter
from understudy.worker.encoding.messages import DataPosition
from understudy.worker.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")


class Where(NamedTuple):
    """Where the job is: for a newcomer, where it will continue."""

    loop: int  # number of the loop of the job, the first is 0
    iteration: int  # in that loop; -1 before it
    steps: int  # that are committed
    position: Any  # what the owner of a led loop had given as its position at the top of the lost rank's last iteration; None elsewhere


class LedSource(Counter):
    """A source whose batches are drawn by the function that the owner gives for each draw, and are counted."""

    def __init__(self, position: Callable[[], Any], go_to: Callable[[Any], None]) -> None:
        super().__init__()
        self._position, self._go_to = position, go_to
        self.function: Callable[[], Any] | None = None

    def position(self) -> DataPosition:
        return DataPosition(self.index, state=self._position())

    def go_to(self, position: DataPosition) -> None:
        super().go_to(position)
        self._go_to(position.state)

    def pass_by(self, position: DataPosition) -> None:
        self.go_to(position)

    def run_through(self) -> None:
        with suppress(StopIteration):
            while True:
                self.draw(lambda: None)

    def draw(self, new_epoch: Callable[[], None]) -> Any:
        if self.function is None:
            raise UsageError(script.DRAWN_OUTSIDE())
        batch = self.function()
        super().draw(new_epoch)
        return batch


class LedLoop:
    """A loop of the job that its owner leads: it draws each batch by `draw`, and calls `end` after the last one."""

    def __init__(self, source: LedSource, iterations: Iterator[Any]) -> None:
        self._source, self._iterations = source, iterations

    @property
    def iteration(self) -> int:
        """The number of the iteration whose batch was drawn last, from 0; -1 before the first draw."""
        return self._source.index - 1

    def draw(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Begin the next iteration, and return its batch, which `function` draws. On a newcomer, the first draw goes to the position of the
        job, and may call `function` twice: for the batch of the lost rank's last iteration, and for the next one.

        Raises `StopIteration` if `function` does, and on a newcomer if the job has finished this loop.
        """
        self._source.function = functools.partial(function, *args, **kwargs)
        try:
            batch: R = next(self._iterations)
            return batch
        finally:
            self._source.function = None

    def end(self) -> None:
        """End the loop."""
        close = getattr(self._iterations, "close", None)
        if close is not None:
            close()
