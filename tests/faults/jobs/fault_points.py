"""Named points in a training script at which a test lets something happen to exactly one rank, exactly once.

A plan is a list of `point:step:rank:action`, separated by semicolons. `step` is the number of committed steps at that
moment, or `*` for the first time that the point is reached at all. `rank` may be `2+3`: rank 2 reaches the point and
takes rank 3 with it. Actions are names of signals, `HANG` (the main thread waits for ever, the process lives on) and `GATE`
(waits until the test opens it). A file made with O_EXCL marks a fault as done, so that the redo does not meet it again.

Points in the script call `fire`; those inside the runtime (the vote, a newcomer's promotion, the donors' part in it) are
reached by wrapping the runtime's functions here, which changes nothing else.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from understudy.core.events import Event, Verified
from understudy.worker import newcomer as newcomer_module
from understudy.worker import recovery as recovery_module
from understudy.worker import session
from understudy.worker.buddies import Channel
from understudy.worker.codec import encode
from understudy.worker.control import Control
from understudy.worker.peers import frame
from understudy.worker.runtime import Runtime
from understudy.worker.transfer import Plan

Function = Callable[..., Any]
_COLLECTIVES = (
    "all_reduce",
    "all_gather_into_tensor",
    "all_gather_single",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
)


@dataclass(frozen=True)
class Fault:
    text: str
    point: str
    step: int | None
    ranks: tuple[int, ...]
    action: str


def parse(plan: str) -> list[Fault]:
    found = []
    for text in filter(None, plan.split(";")):
        point, step, ranks, action = text.rsplit(":", 3)
        numbers = tuple(int(rank) for rank in ranks.split("+"))
        found.append(Fault(text, point, None if step == "*" else int(step), numbers, action))
    return found


class FaultPoints:
    """The faults of one worker. `committed` gives the number of committed steps."""

    def __init__(self, folder: Path, plan: str, rank: int, committed: Callable[[], int]) -> None:
        self._folder = folder
        self._plan = parse(plan)
        self._faults = [fault for fault in self._plan if fault.ranks[0] == rank]
        self._rank = rank
        self._committed = committed
        self._in_backward = False
        self._issued = 0  # collectives in the present backward
        self._expected = 0  # as many as there were in the last complete one
        with (folder / f"pids-{rank}.txt").open("a") as file:
            file.write(f"{os.getpid()}\n")

    def fire(self, point: str) -> None:
        for fault in self._faults:
            if fault.point == point and fault.step in (None, self._committed()) and not self._marker(fault).exists():
                self._wait_for_earlier(fault)
                if self._first(fault):
                    self._act(fault)

    def _wait_for_earlier(self, fault: Fault) -> None:
        """Faults at one step happen in the order of the plan, or else one could keep another from ever being reached."""
        pause = threading.Event()
        for earlier in self._plan[: self._plan.index(fault)]:
            while earlier.step == fault.step is not None and not self._marker(earlier).exists():
                pause.wait(0.01)

    def _marker(self, fault: Fault) -> Path:
        return self._folder / f"fired-{fault.text}"

    def _first(self, fault: Fault) -> bool:
        try:
            os.close(os.open(self._marker(fault), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _act(self, fault: Fault) -> None:
        if fault.action == "HANG":
            threading.Event().wait()
        elif fault.action == "GATE":
            pause = threading.Event()
            while not self._marker(fault).with_suffix(".open").exists():
                pause.wait(0.01)
        else:
            number = signal.Signals[fault.action]
            for rank in fault.ranks[1:]:
                pids = (self._folder / f"pids-{rank}.txt").read_text().split()
                os.kill(int(pids[-1]), number)
            os.kill(os.getpid(), number)

    # -- collectives of backward -----------------------------------------------------------------------------------------

    def backward(self) -> None:
        """From here to `backward_done`, collectives are counted."""
        self._in_backward, self._issued = True, 0

    def backward_done(self) -> None:
        self._in_backward, self._expected = False, self._issued

    def _collective(self, operate: Function) -> Function:
        def issue(*args: Any, **kwargs: Any) -> Any:
            result = operate(*args, **kwargs)
            if self._in_backward:
                self._issued += 1
                if self._issued == 1:
                    self.fire("first collective of backward")
                if self._issued == self._expected:
                    self.fire("last collective of backward")
            return result

        return issue

    # -- inside the runtime ----------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Call it right after `join`, on every worker."""
        for name in _COLLECTIVES:
            if hasattr(dist, name):
                wrap(dist, name, self._collective)
        wrap(functional, "all_reduce", self._collective)
        self._wrap_vote()
        if session.current is not None and session.current.assignment.newcomer:
            self._wrap_promotion()
        wrap(recovery_module, "send", self._before("donor in the transfer"))

    def _wrap_vote(self) -> None:
        runtime = _runtime()

        def voting() -> str:
            """`step` or `section` in the vote of one, else nothing."""
            return runtime.kind.split(" ")[0] if runtime is not None and not runtime.past_vote else ""

        def around_hand_over(hand_over: Function) -> Function:
            def handing_over(channel: Channel, data: bytes) -> Any:
                kind = voting()
                self.fire(f"vote of a {kind}: at its start")
                found = hand_over(channel, data)
                self.fire(f"vote of a {kind}: copies handed over")
                return found

            return handing_over

        def around_agree(agree: Function) -> Function:
            def agreeing(channel: Channel, flags: list[int]) -> Any:
                kind = voting()
                for fault in self._faults:
                    mine = fault.point == f"vote of a {kind}: agreement issued" and fault.step == self._committed()
                    if mine and not self._marker(fault).exists():
                        first = (channel.rank + 1) % channel.world_size
                        channel.peers.exchange({first: frame(encode(flags))}, {})  # what an agreement begins with
                        self.fire(fault.point)
                result = agree(channel, flags)
                self.fire(f"vote of a {kind}: passed here")
                return result

            return agreeing

        wrap(Channel, "hand_over", around_hand_over)
        wrap(Channel, "agree", around_agree)

    def _wrap_promotion(self) -> None:
        def around_receive(receive: Function) -> Function:
            def receiving(peers: Any, tensors: Any, plan: Plan) -> None:
                for fault in self._faults:
                    if fault.point == "newcomer in its transfer" and not self._marker(fault).exists():
                        receive(peers, tensors, replace(plan, messages=plan.messages[: max(1, len(plan.messages) // 2)]))
                        self.fire(fault.point)
                receive(peers, tensors, plan)

            return receiving

        def around_send(send: Function) -> Function:
            def sending(control: Control, event: Event) -> None:
                send(control, event)
                if isinstance(event, Verified):
                    self.fire("newcomer just verified")

            return sending

        wrap(newcomer_module, "receive", around_receive)
        wrap(newcomer_module, "attached", self._before("newcomer attached"))
        wrap(Control, "send", around_send)

    def _before(self, point: str) -> Callable[[Function], Function]:
        def around(function: Function) -> Function:
            def called(*args: Any) -> Any:
                self.fire(point)
                return function(*args)

            return called

        return around


def wrap(owner: object, name: str, around: Callable[[Function], Function]) -> None:
    """Puts `around(function)` in the place of `owner`'s function of that name."""
    setattr(owner, name, around(getattr(owner, name)))


def _runtime() -> Runtime | None:
    return session.current.runtime if session.current is not None else None
