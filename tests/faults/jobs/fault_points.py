"""The points of this script at which faults can happen, besides those of the runtime itself (`understudy.worker.hooks`), and faults
that only tests need.

`GATE` waits until the test opens it. `KILL_BOTH` takes another rank's worker along.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from understudy.chaos.base import Fault, Hits, Outcome, Parameter, Values
from understudy.chaos.registry import registry
from understudy.worker.fault_injection.chaos import reach

Function = Callable[..., Any]

_COLLECTIVES = (
    "all_reduce",
    "all_gather_into_tensor",
    "all_gather_single",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
)


def _wait_for_file(values: Values) -> None:
    pause = threading.Event()
    while not Path(str(values["file"])).exists():
        pause.wait(0.01)


def _kill_both(values: Values) -> None:
    other = int(Path(str(values["pids"])).read_text().split()[-1])
    signal.pidfd_send_signal(os.pidfd_open(other), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


GATE = Fault(
    "gate", "Waits for a file.", Hits.WORKER, Outcome.UNDISTURBED, inside=_wait_for_file, parameters=(Parameter("file", "", "which"),)
)
KILL_BOTH = Fault(
    "kill_both",
    "Another rank's worker is killed, and this one.",
    Hits.WORKER,
    Outcome.REPLACED,
    inside=_kill_both,
    parameters=(Parameter("pids", "", "file with the process ids of all that have held the other rank"),),
)


def install(folder: Path, rank: int) -> None:
    """Call it right after `join`, on every worker."""
    registry().add(GATE, KILL_BOTH)
    with (folder / f"pids-{rank}.txt").open("a") as file:
        file.write(f"{os.getpid()}\n")
    with (folder / f"local-{rank}.txt").open("a") as file:
        file.write(f"{os.environ.get('LOCAL_RANK')}\n")


class Backward:
    """Counts the collectives of each backward, and reaches a point at the first and at the last one."""

    def __init__(self) -> None:
        self._running = False
        self._issued = 0  # collectives in the present backward
        self._expected = 0  # as many as there were in the last complete one
        for name in _COLLECTIVES:
            if hasattr(dist, name):
                setattr(dist, name, self._collective(getattr(dist, name)))
        functional.all_reduce = self._collective(functional.all_reduce)

    def begin(self) -> None:
        """From here to `done`, collectives are counted."""
        self._running, self._issued = True, 0

    def done(self) -> None:
        self._running, self._expected = False, self._issued

    def _collective(self, operate: Function) -> Function:
        def issue(*args: Any, **kwargs: Any) -> Any:
            result = operate(*args, **kwargs)
            if self._running:
                self._issued += 1
                if self._issued == 1:
                    reach("first collective of backward")
                if self._issued == self._expected:
                    reach("last collective of backward")
            return result

        return issue
