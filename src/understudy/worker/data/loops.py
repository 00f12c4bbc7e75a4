"""The place of the script: loops, iterations, and the transactions in them; and how a newcomer gets to the same place.

A place is [loop, iteration, index]: the index-th transaction of an iteration, or, with iteration -1, the index-th one outside any loop,
before that loop. Places grow along the script, so a newcomer compares: transactions before the place where the job continues are not
run again. Earlier loops yield nothing, earlier transactions of the same iteration return their recorded results, and the batch of the
iteration is drawn again from its recorded boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from understudy.messages import loading, script
from understudy.worker import hooks
from understudy.worker.data.loaders import LoaderSource, Source, leave_if_data_process_lost
from understudy.worker.data.shared_streams import SharedStreams
from understudy.worker.encoding.contents import content_of
from understudy.worker.encoding.messages import Boundary, BuddyCopy, ScriptPosition
from understudy.worker.errors import BatchMismatch, StateMismatch, UsageError
from understudy.worker.participant import Participant, Step
from understudy.worker.state.streams import Randomness, plain_name

END: ScriptPosition = [1 << 62, 0, 0]  # after every place of the script


class Loops(Participant):
    """The place of this worker in its script."""

    def __init__(self, randomness: Randomness | None, tell: Callable[[str], None] = lambda text: None) -> None:
        """`tell`: called with warnings for the user."""
        self._tell = tell
        self._shared = SharedStreams()
        self._randomness = randomness  # None: without an agent, where this loop is never continued by another worker
        self._loop = 0  # the loop that is running, or the next one
        self._iteration = -1
        self._index = 0
        self.boundary: Boundary | None = None
        self.steps_here = 0  # steps committed since the top of this iteration, or since the last loop
        self.steps_before = 0  # ... and in the iteration before
        self.steps_after: list[int] = []  # steps committed at the end of each loop that is over
        self.drained: list[bool] = []  # whether each of them reached the end of its loader
        self._at_end = False  # of the loader of this loop

    def next_place(self) -> ScriptPosition:
        """Return the place of the next transaction."""
        return [self._loop, self._iteration, self._index]

    def committed(self, step: Step) -> None:
        self.advance(step.kind)

    def advance(self, kind: str) -> None:
        """Advance: a transaction is over, or is skipped."""
        self._index += 1
        self.steps_here += kind == "step"

    @property
    def inside(self) -> bool:
        return self._iteration >= 0

    def enter(self) -> int:
        """Start a loop; return its number. Raises `UsageError` inside another one."""
        if self.inside:
            raise UsageError(script.NESTED_LOOPS())
        self._index, self._at_end = 0, False
        return self._loop

    def leave(self, steps: int) -> None:
        """End a loop; `steps` are committed by now."""
        self._loop, self._iteration, self._index = self._loop + 1, -1, 0
        self.boundary = None
        self.steps_here = 0
        self.steps_after.append(steps)
        self.drained.append(self._at_end)

    def still(self) -> AbstractContextManager[None]:
        """Mark code in which nothing draws a random number."""
        return self._randomness.still() if self._randomness is not None else nullcontext()

    def top(self, source: Source, iteration: int) -> None:
        """Note, at the top of an iteration, where its batch comes from."""
        self.steps_before = self.steps_here if self.inside else 0
        self._iteration, self._index, self.steps_here = iteration, 0, 0
        if self._randomness is not None:
            self.boundary = Boundary(self._loop, iteration, source.position(), self._randomness.capture())

    def draw(self, source: Source) -> Any:
        """Return the batch of this iteration. Raises `StopIteration` at the end of the loader."""
        boundary, randomness = self.boundary, self._randomness
        if boundary is None or randomness is None:
            return source.draw(lambda: None)

        def new_epoch() -> None:
            boundary.position = source.position()
            boundary.streams = randomness.capture()

        try:
            batch = source.draw(new_epoch)
        except StopIteration:
            self._at_end = True
            raise
        except RuntimeError as error:
            leave_if_data_process_lost(error)
            raise
        self._look_at_streams(source, boundary)
        content = content_of(batch)
        boundary.batch, boundary.opaque = content.all, content.opaque
        if content.opaque:
            self._tell(loading.OPAQUE_BATCH(type=content.opaque))
        return batch

    def _look_at_streams(self, source: Source, boundary: Boundary) -> None:
        """Check, for the first draws from a loader whose code a newcomer runs again, whether it draws from streams that the training draws
        from, too.
        """
        if isinstance(source, LoaderSource) and source.goes_on:
            source.goes_on = False
            self._tell(loading.WORKERS_PERSIST())
        if not (isinstance(source, LoaderSource) and source.draws_again and self._shared.may_be and self._randomness is not None):
            return
        if shared := self._shared.drawn(boundary.streams, self._randomness.capture(), source.index):
            self._tell(loading.SHARED_STREAMS(streams=", ".join(map(plain_name, shared))))

    def redraw(self, source: Source, copy: BuddyCopy, rank: int, at_top: Callable[[], None], exact: bool) -> Any:
        """Draw, on a newcomer, the batch of the iteration that the lost rank handed over, and prove that it is the same one.

        `at_top` sets what the dataset may depend on as it was at the top of that iteration, or, if that is not `exact`, after it: then
        that is tried after the values of the set-up.
        """
        boundary = copy.boundary
        assert boundary is not None
        position = hooks.filter("position", boundary.position, source=source)
        source.go_to(position)
        if exact:
            at_top()
        batch, found = self._draw_from(source, boundary)
        if boundary.opaque:
            raise UsageError(loading.OPAQUE_BATCH_REDRAWN(rank=rank, iteration=boundary.iteration, type=boundary.opaque))
        for names in (None, at_top):
            if found == boundary.batch or not source.go_again(position):
                break
            if names is not None:
                names()
            batch, found = self._draw_from(source, boundary)
        if found != boundary.batch:
            unlike = {"rank": rank, "iteration": boundary.iteration, "found": found, "wanted": boundary.batch}
            raise BatchMismatch(loading.OTHER_BATCH(**unlike), loading.OTHER_BATCH_BY_FILES(**unlike))
        return batch

    def pass_by(
        self, source: Source, copy: BuddyCopy, rank: int, drained: bool, comes_later: bool, at_end: Callable[[], None] = lambda: None
    ) -> list[Any]:
        """Skip, on a newcomer, a loop that is over: draw its last batch again, prove that it is the same one, and, if the loop was
        `drained`, leave the loader at its end. So a sampler that counts has counted. `comes_later`: what the loader depends on is
        registered. `at_end` sets what the dataset may depend on as the loop left it.

        Batches that cannot be compared are not drawn, and one that need not be the same (what the loader depends on comes later, or it
        draws from the streams of the training) proves nothing. Returns that batch, or nothing if it is not known.
        """
        self._at_end = drained
        boundary = copy.boundary
        if boundary is None or boundary.loop != self._loop:
            if drained:
                source.run_through()
            return []
        source.pass_by(boundary.position)
        if boundary.opaque:
            return []
        before = self._iteration, self._index, self.steps_here, self.boundary
        try:
            batch = self.redraw(source, copy, rank, at_end, exact=False)
        except BatchMismatch:
            assert self._randomness is not None
            if not comes_later and (source.index <= 1 or self._randomness.capture() == boundary.streams):
                raise
            return []
        else:
            with suppress(StopIteration):
                while drained:
                    source.draw(lambda: None)
            return [batch]
        finally:
            self._iteration, self._index, self.steps_here, self.boundary = before

    def _draw_from(self, source: Source, boundary: Boundary) -> tuple[Any, int]:
        assert self._randomness is not None
        self._randomness.restore(boundary.streams)
        self._iteration, self._index, self.steps_here = boundary.iteration, 0, 0
        here = self.boundary = Boundary(boundary.loop, boundary.iteration, boundary.position, boundary.streams)
        return self.draw(source), here.batch


def restore_streams(randomness: Randomness, copy: BuddyCopy, rank: int) -> None:
    """Set the streams of a copy, and prove that they are set. Raises `StateMismatch` if they are not.

    A stream that only the first set-up has made, and that was not used since, may be missing.
    """
    randomness.restore(hooks.filter("streams", copy.streams))
    hooks.fire("streams set")
    now = randomness.capture()
    stale = set(filter(randomness.lacks, copy.unused))
    wrong = sorted(name for name, data in copy.streams.items() if now.get(name) != data and name not in stale)
    if wrong:
        raise StateMismatch(loading.OTHER_STREAMS(rank=rank, streams=wrong))


def iterate(loops: Loops, source: Source, first: int, steps: int | None, top: Any) -> Iterator[Any]:
    """Yield the iterations of a loop from `first` on. `top` is called at the top of each, and after the last one."""
    iteration = first
    while steps is None or iteration < steps:
        with loops.still():
            top(iteration)
            loops.top(source, iteration)
        try:
            batch = loops.draw(source)
        except StopIteration:
            return
        yield batch
        iteration += 1
    with loops.still():
        top(iteration)  # of what follows


class JobLoop(Iterator[Any]):
    """The iterator of a loop. Its length is that of all iterations, wherever it begins."""

    def __init__(self, iterations: Iterator[Any], length: Any) -> None:
        """`length`: a number, or an object that has one; `None` without end."""
        self._iterations = iterations
        self._length = length

    def __next__(self) -> Any:
        return next(self._iterations)

    def __len__(self) -> int:
        """Return the length. Raises `TypeError` if it is unknown."""
        return max(self._length, 0) if isinstance(self._length, int) else len(self._length)

    def __bool__(self) -> bool:
        return True
