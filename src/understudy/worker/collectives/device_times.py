"""Measures by events on the streams how much of a transaction this rank's device computed, and for how much of it the device waited in
collectives.

With NCCL the host does not wait for peers, its kernels do, so the host's threads (`process.own_time`) show nothing. Now and then one
transaction is measured: an event at its begin, one where each collective is issued (the stream has computed all that came before it),
one where that collective has ended, and one before the vote. From these follows the share of the time that was this rank's own
(`own_share`). The orchestrator finds out which rank is slow (`detectors.straggler`).

Only waits count for which the stream that issues collectives is known to be blocked: a collective that the script waits for at once
(`async_op` is false), from its issue to its end; and from the issue of the last collective to the end of all, because before the vote
all are waited for. With DDP, whose collectives overlap with the backward pass, that is the time for which a rank waits for the slowest
one. An intermediate gap between collectives that overlap with computing is never counted: it would make a rank that is slower by
little, or even one that is ahead, look slow.

A measurement costs the host some milliseconds (kernels before all collectives), and some tenths of one for each collective. It is
followed by a pause of `PAUSE` times its cost. All other transactions pay for reading the clock.

It is off unless UNDERSTUDY_OWN_TIME is "device". The transfer itself counts as waiting, which is alike on all ranks.

Known limits: tried on one GPU, which two ranks share (`tests/contract/device_times.py`). Waits within a transaction for collectives
that were started asynchronously (FSDP2, functional collectives) are not seen, so a slow rank of such a job is named only if its last
part is slow. Of a script that computes on several streams, the one that issues a collective counts. Collectives whose Work has no
future end the measuring.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.distributed import Work

from understudy.worker.collectives.interception import Collective, Kernels, work_of
from understudy.worker.participant import Participant, Step
from understudy.worker.state.streams import cuda_in_use

INTERVAL = 0.5  # seconds between two measurements, at least
PAUSE = 100.0  # times the cost of a measurement: 1% of the time


class Events(Protocol):
    """Marks on the streams of a device. A mark means nothing before the device is synchronised."""

    def usable(self) -> bool:
        """Return whether the process uses the device. Called between two transactions."""
        ...

    def covers(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether a collective on these runs on the device, and may be timed now."""
        ...

    def mark(self) -> Any:
        """Note the present place in the stream that the calling thread uses."""
        ...

    def mark_end(self, work: Work, note: Callable[[Any], None]) -> None:
        """Give `note` a mark of the end of a collective, at once or later."""
        ...

    def seconds(self, first: Any, last: Any) -> float:
        """Return the seconds from one mark to another."""
        ...


class CudaEvents:
    """Events of torch, for CUDA as for ROCm."""

    def usable(self) -> bool:
        return torch.cuda.is_initialized()  # type: ignore[no-untyped-call, no-any-return]

    def covers(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return False while a graph is captured: then an event belongs to the graph."""
        return any(tensor.is_cuda for tensor in tensors) and not torch.cuda.is_current_stream_capturing()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def mark_end(self, work: Work, note: Callable[[Any], None]) -> None:
        """Mark the end in a callback of the future, which runs on its own stream that waits for the collective. `Work.wait` would not
        do: what the collective keeps alive for the script's stream is released at the first wait.
        """
        work.get_future().then(lambda _: note(self.mark()))

    def seconds(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        return float(first.elapsed_time(last)) / 1000


@dataclass(frozen=True)
class Times:
    """The times of one collective: issue and end, in seconds from the begin; and whether the script waited for it at once."""

    issued: float
    ended: float
    waited: bool


def own_share(total: float, collectives: Sequence[Times]) -> float:
    """Return the part of `total` seconds in which the device waited for no collective. `collectives`: in the order of their issue."""
    if not collectives or total <= 0:
        return 1.0
    *others, last = collectives
    waited = sum(one.ended - one.issued for one in others if one.waited)
    waited += min(total, max(one.ended for one in collectives)) - last.issued
    return min(1.0, max(0.0, 1.0 - waited / total))


class DeviceTimes(Participant):
    """Measures transactions of the calling process. `events`: None if nothing is to be measured."""

    def __init__(self, events: Events | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._clock = clock
        self._next = 0.0  # time of `clock` at which the next measurement may begin
        self._measuring: _Timing | None = None
        self._share: float | None = None

    def attempt(self, step: Step) -> None:
        if self._events is None or step.alone:
            return
        self.abandon()
        if self._clock() >= self._next and self._events.usable():
            self._measuring = _Timing(self._events, self._clock)
            self._measuring.begin()

    def before_vote(self, step: Step) -> None:
        """Wait for the device: a vote means that this rank's collectives are done."""
        if self._measuring is not None:
            self._measuring.end()
        if cuda_in_use():
            torch.cuda.synchronize()
        measured = self._measuring
        if measured is None:
            return
        try:
            share = measured.share()
        except Exception:  # an error in the device's events: training does not need them
            share, measured.failed = None, True
        if measured.failed:
            self._events = None
        elif share is not None:
            self._share = share
        self.abandon()

    def failed(self, step: Step, error: BaseException) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Measure no more of this transaction."""
        measured, self._measuring = self._measuring, None
        if measured is not None:
            measured.remove()
            self._next = self._clock() + max(INTERVAL, PAUSE * measured.cost)

    def take(self) -> float | None:
        """Return the share that was measured last, once. From any thread."""
        share, self._share = self._share, None
        return share


class _Timing(Kernels):
    """Notes the collectives of one transaction."""

    def __init__(self, events: Events, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._first: Any = None
        self._last: Any = None
        # Where each was issued; where it ended, once that is known; whether it was waited for at once.
        self._collectives: list[tuple[Any, list[Any], bool]] = []
        self.failed = False
        self.cost = 0.0  # seconds of the host

    def begin(self) -> None:
        began = self._clock()
        self.install()
        self.cost += self._clock() - began
        self._first = self._events.mark()

    def end(self) -> None:
        self._last = self._events.mark()
        self.remove()

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        began = self._clock()
        if self.failed or not self._events.covers([*collective.outputs, *collective.inputs]):
            return operate()
        issued, ended = self._events.mark(), list[Any]()
        self.cost += self._clock() - began
        result = operate()
        began = self._clock()
        try:
            if (work := work_of(result)) is not None:
                self._events.mark_end(work, ended.append)
            else:
                ended.append(self._events.mark())
        except Exception:  # this Work has no future: training does not need it
            self.failed = True
        self._collectives.append((issued, ended, collective.arguments.get("async_op") is False))
        self.cost += self._clock() - began
        return result

    def share(self) -> float | None:
        """Return the share. None if not all of it is known, or no collective was issued, so that nothing distinguishes this rank from
        others.
        """
        if not self._collectives or not all(ended for _, ended, _ in self._collectives):
            return None
        since = [Times(self._from_begin(issued), self._from_begin(ended[0]), waited) for issued, ended, waited in self._collectives]
        return own_share(self._from_begin(self._last), since)

    def _from_begin(self, mark: Any) -> float:
        return self._events.seconds(self._first, mark)
