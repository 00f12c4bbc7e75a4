"""Faults inside a worker: only in a job that was started with `understudy run --chaos`, which loads this module.

It listens at the points of the runtime (`worker.hooks`) that `chaos.points` lists, which changes nothing. At each the worker checks
whether a fault of the folder `chaos` in the run directory waits for it there (`chaos.armed`), and lets it happen once. Without
`--chaos` there are no listeners and no checks. Torch's own `backward` is wrapped, because its middle is not the runtime's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from understudy.chaos.armed import ANY, HOLD, Armed, Folder
from understudy.chaos.base import Outcome
from understudy.chaos.points import POINTS
from understudy.chaos.registry import registry
from understudy.worker import hooks, patches
from understudy.worker.api import session
from understudy.worker.progress import Progress
from understudy.worker.transport.channel import AGREEMENT, Channel, ballot_layout
from understudy.worker.transport.peers import framed

REHEARSAL = "rehearsal "  # before the names of points that only the spare of a drill reaches
LOOK = 0.01  # seconds between two checks whether an earlier fault has happened


class Trigger:
    """The faults that wait for this worker, which has `rank`."""

    def __init__(self, folder: Folder, worker: str, rank: int) -> None:
        self.folder = folder
        self._worker = worker
        self._rank = rank
        self._known: dict[str, Armed | None] = {}  # None: nothing for this worker
        self._looking = threading.Lock()  # a drill has a thread that reaches points, too

    def reach(self, point: str) -> None:
        """Let the fault that waits at `point` happen now; this thread has reached it."""
        for armed in self.due(point):
            while armed.behind and not self.folder.has_fired(armed.behind):
                threading.Event().wait(LOOK)
            progress = _progress()
            where = {
                "worker": self._worker,
                "rank": self._rank,
                "pid": os.getpid(),
                "point": point,
                "transaction": progress.transaction if progress is not None else -1,
                "step": _step(),
                "time": time.time(),
            }
            self._known[armed.name] = None
            if self.folder.claim(armed.name, where):
                self._happen(armed)

    def _happen(self, armed: Armed) -> None:
        if armed.fault == HOLD:
            while self.folder.is_armed(armed.name):
                threading.Event().wait(LOOK)
            return
        inside = registry().find(armed.fault).inside
        assert inside is not None, f"{armed.fault} is not for the inside of a worker"
        inside(armed.values)

    def due(self, point: str) -> list[Armed]:
        """Return the fault that would happen at `point` now."""
        names = set(self.folder.names())
        with self._looking:
            for name in names - self._known.keys():
                self._known[name] = self._look(name)
            return [armed for armed in self._known.values() if armed is not None and armed.name in names and _fits(armed, point)]

    def _look(self, name: str) -> Armed | None:
        armed = self.folder.read(name)
        mine = armed is not None and armed.rank == self._rank and not self.folder.has_fired(name)
        return armed if mine else None


def _fits(armed: Armed, point: str) -> bool:
    if _rehearses() and not armed.point.startswith(REHEARSAL):
        return False  # the spare of a drill has its rank's number, and is not that rank: a fault armed for a step is not for it
    return armed.point in (ANY, point) and (armed.step is None or armed.step <= _step())


def _progress() -> Progress | None:
    runtime = session.current.runtime if session.current is not None else None
    return runtime.progress if runtime is not None else None


def _rehearses() -> bool:
    runtime = session.current.runtime if session.current is not None else None
    return runtime is not None and runtime.watch.current.alone


def _step() -> int:
    progress = _progress()
    return progress.step if progress is not None else 0


def _in_section() -> bool:
    progress = _progress()
    return progress is not None and progress.kind == "section"


trigger: Trigger | None = None  # of this worker, if the job was started with --chaos


def reach(point: str) -> None:
    """Reach a point in a script."""
    if trigger is not None:
        trigger.reach(point)


def install() -> None:
    """Install the listeners on a worker that has just got its rank, before its script begins."""
    global trigger
    assert session.current is not None
    trigger = Trigger(Folder(Path(os.environ["UNDERSTUDY_RUN_DIR"])), session.current.control.worker, session.current.role.rank)
    registry()  # loaded now, and not in the middle of a step
    _listen_in_steps(trigger)
    _listen_in_votes(trigger)
    _listen_in_recoveries(trigger)
    _listen_in_drills(trigger)
    trigger.reach("newcomer" if session.current.newcomer else "setup")


def _listen_in_steps(at: Trigger) -> None:
    def backward(stock: Callable[..., None], tensors: Any, *args: Any, **kwargs: Any) -> None:
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        first = next((root.grad_fn for root in roots if isinstance(root, torch.Tensor) and root.grad_fn is not None), None)
        hook = first.register_prehook(lambda *_: at.reach("backward")) if first is not None else None
        try:
            stock(tensors, *args, **kwargs)
        finally:
            if hook is not None:
                hook.remove()
        at.reach("reduced")

    patches.wrap(torch.autograd, "backward", backward, "faults in the middle of a backward pass")
    hooks.on("begin", lambda: at.reach("evaluation" if _in_section() else "forward"))
    hooks.on("optimizer", lambda: at.reach("apply"))
    hooks.on("committed", _reaching(at, "between"))
    register_optimizer_step_post_hook(lambda *_: at.reach("applied"))


def _listen_in_votes(at: Trigger) -> None:
    def here(point: str) -> str:
        return f"section {point}" if _in_section() else point

    def agreement(channel: Channel, ballot: tuple[list[int], list[int]]) -> None:
        due = at.due(here("vote agreement"))
        if due and all(armed.fault != HOLD and registry().find(armed.fault).expected is Outcome.REPLACED for armed in due):
            first = (channel.rank + 1) % channel.world_size  # an agreement begins with it; a worker that joins again sends it again
            numbers, bits = ballot
            packed = ballot_layout(len(numbers), len(bits)).pack(*numbers, *bits)
            channel.peers.exchange({first: iter((framed(packed, AGREEMENT),))}, {})
        at.reach(here("vote agreement"))

    hooks.on("vote", lambda: at.reach(here("vote")))
    hooks.on("vote copies", lambda: at.reach(here("vote copies")))
    hooks.on("vote agreement", agreement)
    hooks.on("vote passed", lambda: at.reach(here("vote passed")))


def _reaching(at: Trigger, name: str) -> Callable[..., None]:
    return lambda **_: at.reach(name)


def _listen_in_recoveries(at: Trigger) -> None:
    def giving(tensors: Any, **_: Any) -> Any:
        at.reach("donate")
        return tensors

    for point in ("attach", "quiesce", "transfer", "verified", "attached"):
        hooks.on(point, _reaching(at, point))
    hooks.on("taken", _reaching(at, "verify"))
    hooks.on_filter("give", giving)


def _listen_in_drills(at: Trigger) -> None:
    for point in ("prepared", *(point for point in POINTS if point.startswith(("drill ", REHEARSAL)))):
        hooks.on(point, _reaching(at, point))
