"""Faults inside a worker: only in a job that was started with `understudy run --chaos`, which loads this module.

The runtime's own functions are wrapped at the points that `chaos.points` lists, which changes nothing else. At each the worker
looks whether a fault of the folder `chaos` in the run directory waits for it there (`chaos.armed`), and lets it happen once. Without
`--chaos` nothing is wrapped and nothing is looked for.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from understudy.chaos.armed import ANY, HOLD, Armed, Folder
from understudy.chaos.base import Outcome
from understudy.chaos.registry import registry
from understudy.core.events import Event, Verified
from understudy.worker import newcomer as newcomer_module
from understudy.worker import recovery as recovery_module
from understudy.worker import session
from understudy.worker.buddies import AGREEMENT, Channel
from understudy.worker.codec import encode
from understudy.worker.control import Control
from understudy.worker.frameworks import Frameworks
from understudy.worker.membership import Membership
from understudy.worker.peers import frame
from understudy.worker.runtime import Runtime
from understudy.worker.transfer import Plan

Function = Callable[..., Any]
LOOK = 0.01  # seconds between two looks whether an earlier fault has happened


class Trigger:
    """The faults that wait for this worker, which holds `rank`."""

    def __init__(self, folder: Folder, worker: str, rank: int) -> None:
        self.folder = folder
        self._worker = worker
        self._rank = rank
        self._known: dict[str, Armed | None] = {}  # None: nothing of this worker's

    def reach(self, point: str) -> None:
        """The main thread is at `point`: what waits for it there happens now."""
        for armed in self.due(point):
            while armed.behind and not self.folder.has_fired(armed.behind):
                threading.Event().wait(LOOK)
            runtime = _runtime()
            where = {
                "worker": self._worker,
                "rank": self._rank,
                "pid": os.getpid(),
                "point": point,
                "transaction": runtime.transaction if runtime is not None else -1,
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
        """What would happen at `point` now."""
        names = set(self.folder.names())
        for name in names - self._known.keys():
            self._known[name] = self._look(name)
        return [armed for armed in self._known.values() if armed is not None and armed.name in names and _fits(armed, point)]

    def _look(self, name: str) -> Armed | None:
        armed = self.folder.read(name)
        mine = armed is not None and armed.rank == self._rank and not self.folder.has_fired(name)
        return armed if mine else None


def _fits(armed: Armed, point: str) -> bool:
    return armed.point in (ANY, point) and (armed.step is None or armed.step <= _step())


def _runtime() -> Runtime | None:
    return session.current.runtime if session.current is not None else None


def _step() -> int:
    runtime = _runtime()
    return runtime.step if runtime is not None else 0


trigger: Trigger | None = None  # of this worker, if the job was started with --chaos


def reach(point: str) -> None:
    """For points in a script."""
    if trigger is not None:
        trigger.reach(point)


def install() -> None:
    """On a worker that has just got its rank, before its script begins."""
    global trigger
    assert session.current is not None
    trigger = Trigger(Folder(Path(os.environ["UNDERSTUDY_RUN_DIR"])), session.current.control.worker, session.current.role.rank)
    registry()  # loaded now, and not in the middle of a step
    _wrap_step(trigger)
    _wrap_vote(trigger)
    _wrap_recovery(trigger)
    trigger.reach("newcomer" if session.current.newcomer else "setup")


def _wrap_step(at: Trigger) -> None:
    def around_backward(backward: Function) -> Function:
        def running(tensors: Any, *args: Any, **kwargs: Any) -> None:
            roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            first = next((root.grad_fn for root in roots if isinstance(root, torch.Tensor) and root.grad_fn is not None), None)
            hook = first.register_prehook(lambda *_: at.reach("backward")) if first is not None else None
            try:
                backward(tensors, *args, **kwargs)
            finally:
                if hook is not None:
                    hook.remove()
            at.reach("reduced")

        return running

    def beginning() -> str:
        runtime = _runtime()
        return "evaluation" if runtime is not None and runtime.kind.startswith("section") else "forward"

    wrap(Frameworks, "begin", behind(lambda: at.reach(beginning())))
    wrap(torch.autograd, "backward", around_backward)
    wrap(Runtime, "_before_optimizer_step", behind(lambda: at.reach("apply")))
    wrap(Runtime, "_commit", behind(lambda: at.reach("between")))
    register_optimizer_step_post_hook(lambda *_: at.reach("applied"))


def _wrap_vote(at: Trigger) -> None:
    def prefix() -> str | None:
        """`""` in the vote of a step, `"section "` in that of a section, else None."""
        runtime = _runtime()
        if runtime is None or runtime.past_vote or not runtime.kind:
            return None
        return "" if runtime.kind.startswith("step") else "section "

    def around_hand_over(hand_over: Function) -> Function:
        def handing_over(channel: Channel, data: bytes) -> Any:
            of = prefix()
            if of is None:
                return hand_over(channel, data)
            at.reach(f"{of}vote")
            found = hand_over(channel, data)
            at.reach(f"{of}vote copies")
            return found

        return handing_over

    def around_agree(agree: Function) -> Function:
        def agreeing(channel: Channel, flags: list[int]) -> Any:
            of = prefix()
            if of is None:
                return agree(channel, flags)
            due = at.due(f"{of}vote agreement")
            if due and all(armed.fault != HOLD and registry().find(armed.fault).expected is Outcome.REPLACED for armed in due):
                first = (channel.rank + 1) % channel.world_size
                channel.peers.exchange(
                    {first: frame(AGREEMENT + encode(flags))}, {}
                )  # what an agreement begins with; who comes back says it again
            at.reach(f"{of}vote agreement")
            result = agree(channel, flags)
            at.reach(f"{of}vote passed")
            return result

        return agreeing

    wrap(Channel, "hand_over", around_hand_over)
    wrap(Channel, "agree", around_agree)


def _wrap_recovery(at: Trigger) -> None:
    def around_receive(receive: Function) -> Function:
        def receiving(peers: Any, tensors: Any, plan: Plan) -> None:
            half = max(1, len(plan.messages) // 2) if at.due("transfer") else 0
            if half:
                receive(peers, tensors, replace(plan, messages=plan.messages[:half]))
                at.reach("transfer")
            receive(peers, tensors, replace(plan, messages=plan.messages[half:]))
            at.reach("verify")

        return receiving

    def around_send(send: Function) -> Function:
        def sending(control: Control, event: Event) -> None:
            send(control, event)
            if isinstance(event, Verified):
                at.reach("verified")

        return sending

    for module in (newcomer_module, recovery_module):
        wrap(module, "connect", before(lambda: at.reach("attach")))
    wrap(Membership, "quiesce", before(lambda: at.reach("quiesce")))
    wrap(recovery_module, "send", before(lambda: at.reach("donate")))
    wrap(newcomer_module, "receive", around_receive)
    wrap(newcomer_module, "attached", before(lambda: at.reach("attached")))
    wrap(Control, "send", around_send)


def wrap(owner: object, name: str, around: Callable[[Function], Function]) -> None:
    """Puts `around(function)` in the place of `owner`'s function of that name."""
    setattr(owner, name, around(getattr(owner, name)))


def before(act: Callable[[], None]) -> Callable[[Function], Function]:
    def around(function: Function) -> Function:
        def called(*args: Any, **kwargs: Any) -> Any:
            act()
            return function(*args, **kwargs)

        return called

    return around


def behind(act: Callable[[], None]) -> Callable[[Function], Function]:
    def around(function: Function) -> Function:
        def called(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            act()
            return result

        return called

    return around
