"""The collectives of one step: recorded on the rank that runs it, replayed on the spare that computes the same step in parallel (a drill).

On the rank a kernel notes the inputs of each collective, as digests, and its outputs, whole. On the spare, which has no peers, a kernel
compares the inputs, and returns the outputs of the rank. Nothing in the rank's step is waited for earlier than the script waits: the
script gets a Work that copies the results when it is done, before any other code sees them.

Calls are matched by *lanes*: a lane is a group, and for messages between two ranks also the direction, the other one and the tag.
Within a lane the order is the same on rank and spare, or the job itself would not work; between lanes it need not be, as autograd runs
its own threads.

Not compared, because it means nothing: what a member gives that the operation does not read (a broadcast's buffer on a member that is
not the root). Equal objects may have different pickles, so objects that are moved are compared themselves, and neither bytes nor sizes.

Known limits: on an accelerator none of it has run yet. Reading `Work.result` of a recorded call returns the result of the communicator.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch._C._distributed_c10d as c10d
from torch.distributed import Work

from understudy.messages import calls
from understudy.worker.collectives.calls import given_to, lane_of, moved_objects, settings_of
from understudy.worker.collectives.interception import Collective, Kernels, shapes, work_of
from understudy.worker.encoding.digests import digest
from understudy.worker.encoding.messages import DrilledCollective
from understudy.worker.errors import GenerationAborted

_c10d: Any = c10d  # for what its stub does not list


_OVER = -1  # of collectives: the attempt has been broken off


class Unlike(GenerationAborted):
    """Raised when the spare's call is not the rank's: it cannot go on with this step."""


class BrokenOff(GenerationAborted):
    """Raised to end the attempt here, in the middle of its step."""


class Beyond(GenerationAborted):
    """Raised when what the rank received from here on was too much to be sent."""


def _comparable(tensors: list[torch.Tensor], objects: int | None) -> list[int]:
    if objects is not None:
        return [objects if tensor.dtype is torch.uint8 else 0 for tensor in tensors]
    return [digest(tensor.detach().contiguous()) for tensor in tensors]


def _entry(collective: Collective, lane: str, number: int, objects: int | None) -> DrilledCollective:
    given = given_to(collective)
    return DrilledCollective(
        lane,
        number,
        collective.operator,
        settings_of(collective),
        shapes(given),
        _comparable(given, objects),
        shapes(collective.outputs),
        [],
        -1,
    )


class StepRecorder(Kernels):
    """Records on the rank. `give` gets every collective when its results are there, on the thread on which that is. `fail` gets errors in
    recording, and the script never does: its collective is not affected.
    """

    def __init__(self, give: Callable[[DrilledCollective], None], fail: Callable[[Exception], None]) -> None:
        super().__init__()
        self._give = give
        self._fail = fail
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._works: list[_WatchedWork] = []  # C++ knows only its own part of a Work, and must find the other as long as it lives

    def remove(self) -> None:
        super().remove()
        for watched in self._works:
            watched.release()

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        try:
            entry = self._entry(collective)
        except Exception as error:  # a kind of tensor that cannot be read, as a sparse one
            self._fail(error)
            return operate()
        result = operate()
        outputs = collective.outputs
        work = work_of(result)

        def done() -> None:
            try:
                entry.outputs = [tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in outputs]
                if collective.operator == "recv_any_source_":
                    entry.source = watched.source
                self._give(entry)
            except Exception as error:  # as above
                self._fail(error)

        if not outputs or work is None:
            done()
            return result
        watched = _WatchedWork(work, done)
        self._works.append(watched)
        return collective.answer(watched.boxed())

    def issued(self) -> dict[str, int]:
        """Return by lane how many collectives were issued so far."""
        with self._lock:
            return dict(self._numbers)

    def _entry(self, collective: Collective) -> DrilledCollective:
        """Return the entry of the inputs."""
        lane = lane_of(collective)
        with self._lock:
            number = self._numbers[lane]
            self._numbers[lane] += 1
        return _entry(collective, lane, number, moved_objects())


class _Once:
    """An action that runs once, on the first call."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            action, self._action = self._action, None
            if action is not None:
                action()


def _finished() -> Work:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result([])
    work: Work = _c10d._create_work_from_future(future)
    return work


class _WatchedWork(Work):
    """Wraps `work`, with an action that runs once when it is done, before any other code knows."""

    kept = 1  # references to it that are not the script's

    def __init__(self, work: Work, done: Callable[[], None]) -> None:
        super().__init__()
        self._work = work
        self._done = once = _Once(done)
        self._over: bool | None = None  # the result of the first wait: some Works copy their result, and must not do it again
        self._future: torch.futures.Future[Any] | None = None

        def then(future: torch.futures.Future[Any]) -> Any:
            value = future.value()  # raises what the collective raises
            once()
            return value

        with suppress(RuntimeError):  # Gloo has none for reduce_scatter and messages between two: then the action runs in a wait
            self._future = work.get_future().then(then)

    @property
    def waited(self) -> bool:
        return self._over is not None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if self._over is None:
            over = self._work.wait(timeout) if timeout else self._work.wait()
            if self._future is not None:
                self._future.wait()
            self._done()
            self._over = bool(over)
        return self._over

    def get_future(self) -> torch.futures.Future[Any]:
        return self._work.get_future() if self._future is None else self._future

    def release(self) -> None:
        """Release the tensors of the work after the step, if it is done. This object must stay, because in its place C++ would go on with
        a Work that never ends.
        """
        if self._over is None:
            try:
                if self._future is None or not self._future.done():
                    return
                self._future.value()
            except Exception:  # the caller that waits gets it
                return
        self._work, self._future, self._over = _finished(), None, True

    def is_completed(self) -> bool:
        return self._work.is_completed() and (self._future is None or self._future.done())

    def is_success(self) -> bool:
        return self._work.is_success()

    def exception(self) -> Any:
        return self._work.exception()

    def result(self) -> list[torch.Tensor]:
        return self._work.result()

    def synchronize(self) -> None:
        self.wait()

    @property
    def source(self) -> int:
        """Return the rank, in its group, whose message this has received."""
        return int(self._work._source_rank())

    def _source_rank(self) -> int:
        return self.source


class _Received(Work):
    """A message that the spare has received from any rank. No other Work can report the source."""

    def __init__(self, source: int) -> None:
        super().__init__()
        self._source = source

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def _source_rank(self) -> int:
        return self._source


class StepReplayer(Kernels):
    """Replays on the spare. `put` is called by the thread that reads what the rank sends, all else by those of the script."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank
        self._entries: dict[tuple[str, int], DrilledCollective] = {}
        self._numbers: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._over: str | None = None  # why no more come; "": the step is over there
        self._issued: dict[str, int] | None = None  # by lane: how many there are in the step, once that is known
        self._beyond = False  # some were too much to be sent
        self.different: list[str] = []  # inputs of collectives that differ from the rank's, in order
        self.unlike_before: bool | None = None  # whether there were some in the first attempt; None while that runs
        self.unlike_itself: list[str] = []  # inputs of collectives that differ between a later attempt and the first
        self._digests: dict[tuple[str, int], list[int]] = {}  # of the inputs in the first attempt
        self._break_off: tuple[int, Callable[[], None]] | None = None  # at which collective the next attempt ends, and the callback
        self.compared = 0  # collectives, in this attempt
        self._received: list[_Received] = []  # C++ must find them, as those of a recorder

    def put(self, entry: DrilledCollective) -> None:
        with self._changed:
            self._entries[entry.lane, entry.number] = entry
            self._changed.notify_all()

    def close(self, why: str) -> None:
        """Close: no more will come, and callers that wait for one get the reason. `why` is empty if the step is over."""
        with self._changed:
            self._over = self._over or why
            self._changed.notify_all()

    def complete(self, issued: dict[str, int], left_out: int) -> None:
        """Note that the step issues no others than these, by lane. Those that were not `left_out` are here, or will be when they are done
        there.
        """
        with self._changed:
            self._issued, self._beyond = self._issued or issued, left_out > 0
            self._changed.notify_all()

    def again(self) -> None:
        """Start the same step once more, from its begin, with the kept values."""
        if self.unlike_before is None:
            self.unlike_before = bool(self.different)
        if self._break_off is not None and self._break_off[0] == _OVER:
            self._break_off = None
        self._numbers.clear()
        self.compared = 0

    def break_off(self, number: int, reached: Callable[[], None]) -> None:
        """End the next attempt at its collective `number`, on any lane: `reached` is called there, and `BrokenOff` raised."""
        self._break_off = number, reached

    def missing(self) -> str:
        """Return the first collective that the rank has issued in this step, and the spare has not."""
        with self._changed:
            for (lane, number), entry in self._entries.items():
                if number >= self._numbers[lane]:
                    return calls.ONLY_RANK_ISSUES(rank=self._rank, call=_named(entry))
        return ""

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        if self._break_off is not None and self.compared >= self._break_off[0]:
            _, reached = self._break_off
            self._break_off = _OVER, reached  # a script that catches this gets no further, as on a survivor
            reached()
            raise BrokenOff("this attempt of a drill ends in the middle of its step")
        lane, objects = lane_of(collective), moved_objects()
        with self._changed:
            number = self._numbers[lane]
            self._numbers[lane] += 1
            self._changed.wait_for(lambda: (lane, number) in self._entries or self._none_follows(lane, number))
            entry = self._entries.get((lane, number))
        if entry is None and self._beyond:
            raise Beyond("the rank received more here than can be sent")
        if entry is None:
            this = f"{collective.operator.strip('_')} number {number} on group {lane!r}"
            raise Unlike(self._over or calls.ONLY_SPARE_ISSUES(call=this, rank=self._rank))
        here = _entry(collective, lane, number, objects)
        if self._digests.setdefault((lane, number), here.digests) != here.digests:
            self.unlike_itself.append(f"the input to {_named(entry)}")
        self._compare(here, entry, objects is not None)
        with torch.no_grad():
            for tensor, value in zip(collective.outputs, entry.outputs, strict=False):
                if tensor.shape == value.shape:  # else it is a pickle that this rank sends, and its own serves as well
                    tensor.detach().copy_(value)
        if collective.operator == "recv_any_source_":
            self._received.append(_Received(entry.source))
            return collective.answer(self._received[-1].boxed())
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(collective.outputs)
        return collective.answer(_c10d._create_work_from_future(future).boxed())

    def _none_follows(self, lane: str, number: int) -> bool:
        """Return whether that collective will not come any more."""
        return self._over is not None or (self._issued is not None and (self._beyond or number >= self._issued.get(lane, 0)))

    def _compare(self, here: DrilledCollective, there: DrilledCollective, of_objects: bool) -> None:
        """Compare. Raises `Unlike` if the outputs there do not fit here."""
        mine, theirs = (here.operator, here.settings, here.results), (there.operator, there.settings, there.results)
        if mine != theirs and not (of_objects and mine[:2] == theirs[:2]):
            raise Unlike(calls.SPARE_ISSUES_ANOTHER(here=_named(here), rank=self._rank, there=_named(there)))
        self.compared += 1
        if here.given != there.given and not of_objects:
            self.different.append(calls.INPUT_SIZES_DIFFER(call=_named(there), here=_shown(here.given), there=_shown(there.given)))
        elif here.digests != there.digests:
            differ = calls.OBJECT_DIFFERS if of_objects else calls.INPUT_DIFFERS
            self.different.append(differ(call=_named(there)))


def _named(entry: DrilledCollective) -> str:
    where = f"number {entry.number} on group {entry.lane!r}"
    return f"{entry.operator.strip('_')} {where} ({entry.settings or 'no settings'}) of {_shown(entry.given or entry.results)}"


def _shown(tensors: list[tuple[str, list[int]]]) -> str:
    shown = ", ".join(f"{kind} {tuple(shape)}" for kind, shape in tensors[:3])
    return (shown + (", ..." if len(tensors) > 3 else "")) or "nothing"
