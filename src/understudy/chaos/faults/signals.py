"""Faults by signals: sent to a worker from outside, or raised by itself at a point of its step."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from understudy.chaos.base import SECONDS, Fault, Hits, Outcome, Parameter, Undo, Values, Victim


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def sent(number: signal.Signals) -> Callable[[Victim, Values], None]:
    return lambda victim, values: send(victim.pid, number)


def raised(number: signal.Signals) -> Callable[[Values], None]:
    return lambda values: send(os.getpid(), number)


def stopped(victim: Victim, values: Values) -> Undo:
    """Stop the process until the fault is undone; a worker that was considered hung is gone by then."""
    descriptor = os.pidfd_open(victim.pid)  # the number may belong to another process then
    signal.pidfd_send_signal(descriptor, signal.SIGSTOP)

    def go_on() -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
        os.close(descriptor)

    return go_on


def _signal(name: str, number: signal.Signals, text: str) -> Fault:
    return Fault(name, text, Hits.WORKER, Outcome.REPLACED, outside=sent(number), inside=raised(number))


FAULTS = (
    _signal("sigkill", signal.SIGKILL, "The worker is killed by SIGKILL, as by the kernel when memory is short."),
    _signal("sigterm", signal.SIGTERM, "The worker gets SIGTERM, as from a cluster that takes a machine back."),
    _signal("sigabrt", signal.SIGABRT, "The worker gets SIGABRT."),
    _signal("sigstop", signal.SIGSTOP, "The worker is stopped for good, so it is lost when the hang limit has passed."),
    Fault(
        "pause",
        "The worker is stopped for some seconds and goes on, as on a machine that swaps.",
        Hits.WORKER,
        Outcome.UNDISTURBED,
        outside=stopped,
        parameters=(Parameter(SECONDS, 1.0, "how long; less than the hang limit", "s"),),
    ),
)
