"""Each part of a drill's comparison sees what no other does: with it the verdict is against the script, without it all would be the same.

A rank and its spare are two models in this process. The rank's step is recorded, the spare's is replayed and compared by the real
`SpareDrill`; only what brings its messages is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.worker.steps import step_of
from torch import nn
from torch._C._distributed_c10d import HashStore

from understudy.core.commands import Drill
from understudy.core.events import Drilled
from understudy.core.model import DrillVerdict
from understudy.worker.collectives.interception import Kernels
from understudy.worker.drill import spare_drill, step_replay
from understudy.worker.drill.spare_drill import Rehearsed, SpareDrill
from understudy.worker.drill.step_replay import BrokenOff, StepRecorder
from understudy.worker.encoding.messages import DrilledCollective, DrilledMoment
from understudy.worker.generation.context import RankContext
from understudy.worker.guards.file_access import FileAccessGuard
from understudy.worker.participant import Step
from understudy.worker.state.pre_vote_changes import PreVoteChanges
from understudy.worker.state.registry import State
from understudy.worker.verification import step_digests as moments

Part = Callable[[pytest.MonkeyPatch], None]  # switches one off


@pytest.fixture(autouse=True)
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(spare_drill, "Rendezvous", lambda *_: None)
    yield
    for client in Kernels._stack:
        client.remove()
    dist.destroy_process_group()


class Said(Exception):
    """The spare's verdict, with which its process would end."""

    def __init__(self, reported: Drilled) -> None:
        super().__init__(reported.detail)
        self.reported = reported


class Control:
    worker = "w2"
    reported: Drilled

    def send(self, event: Drilled) -> None:
        self.reported = event

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        raise Said(self.reported)

    def wake(self) -> None:
        pass


@dataclass
class Attempt:
    """Who computes a step, and how often it has begun."""

    how: str = ""
    spare: bool = False
    number: int = 0

    def otherwise(self, how: str) -> bool:
        return self.spare and self.how == how


class Side:
    """A script with its state."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.extra = nn.Linear(4, 1)  # no optimizer trains it
        self.entered = 0  # which is not registered
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.state = State()
        for name in ("net", "extra", "optimizer"):
            self.state.register(name, getattr(self, name))
        self.held: Any = SimpleNamespace(state=self.state, pre_vote=PreVoteChanges(self.state))
        torch.manual_seed(4)

    def step(self, attempt: Attempt) -> Iterator[None]:
        """Up to its vote, and from there to its end."""
        self.optimizer.zero_grad()
        loss = self.net(torch.randn(6, 4)).square().mean()
        loss.backward()
        self.entered += attempt.how == "entered"
        value = loss.detach().clone() + attempt.otherwise("collective") + (attempt.otherwise("redo") and attempt.number > 0) + self.entered
        dist.all_reduce(value)
        self.entered -= attempt.how == "entered"  # as before, if nothing breaks the step off
        (self.extra(torch.ones(1, 4)) * (2 if attempt.otherwise("gradient") else 1)).sum().backward()
        if attempt.otherwise("buffer"):
            self.net.get_buffer("2.running_mean").add_(1)
        yield
        self.extra.zero_grad()
        if attempt.otherwise("buffer"):
            self.net.get_buffer("2.running_mean").sub_(1)
        if attempt.otherwise("state"):
            self.optimizer.param_groups[0]["lr"] = 2e-2
        self.optimizer.step()
        self.optimizer.param_groups[0]["lr"] = 1e-2
        if attempt.otherwise("stream"):
            torch.rand(1)


def on_the_rank(how: str = "") -> tuple[list[DrilledCollective], list[DrilledMoment]]:
    entries: list[DrilledCollective] = []
    failures: list[Exception] = []
    side = Side()
    reported = [moments.at_begin(side.held, [])]
    recorder = StepRecorder(entries.append, failures.append)
    recorder.install()
    step = side.step(Attempt(how))
    next(step)
    reported.append(moments.at_vote(side.held))
    assert next(step, "over") == "over"
    reported.append(moments.at_end(side.held, None))
    recorder.remove()
    assert not failures
    return entries, reported


def verdict(how: str) -> Drilled:
    """Of a spare that does this otherwise."""
    entries, reported = on_the_rank(how)
    side, control = Side(), Control()
    membership: Any = SimpleNamespace(control=control, server=SimpleNamespace(port=0))
    progress: Any = SimpleNamespace(step=7, world_size=2, must_redo=False)
    other: Any = None  # of the way to the step, which is not taken here
    arrival: Any = SimpleNamespace(opened=FileAccessGuard())
    spare = SpareDrill(Drill("w2", 0, 1, 0, "here:1"), RankContext(progress, membership, side.held, other), other, other, arrival)
    for entry in entries:
        spare._replay.put(entry)
    for moment in reported:
        spare._hear(moment)
    spare._replay.install()
    snapshot = side.state.snapshot()
    control.wait_for = lambda predicate: _wait(control, predicate)  # type: ignore[method-assign]
    with pytest.raises(Said) as said:
        whole = step_of("step")
        spare.begin(whole)
        for number in range(3):
            step = side.step(Attempt(how, True, number))
            try:
                next(step)
                spare.before_vote(whole)
            except (Rehearsed, BrokenOff) as error:
                spare.failed(whole, error)
                side.state.restore(snapshot)
                continue
            next(step, None)
            spare.returned(whole)
    spare._replay.remove()
    return said.value.reported


def _wait(control: Control, predicate: Callable[[], bool]) -> None:
    if hasattr(control, "reported"):
        raise Said(control.reported)
    assert predicate(), "everything is here already"


def no_inputs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_replay, "_comparable", lambda tensors, objects: [0] * len(tensors))


def no_gradients(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "made_gradients", lambda self: {})


def no_buffers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "mutable_tensors", lambda self: iter(()))


def no_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "all_tensors", lambda self: {})


def no_streams(patch: pytest.MonkeyPatch) -> None:
    reported = moments._moment

    def without(*given: Any) -> DrilledMoment:
        moment = reported(*given)
        rest = {name: digest for name, digest in moment.digests.items() if not name.startswith("the random stream")}
        return replace(moment, digests=rest)

    patch.setattr(moments, "_moment", without)


def no_redo(patch: pytest.MonkeyPatch) -> None:
    def before_vote(self: SpareDrill, step: Step) -> None:
        self._here[moments.VOTE] = [moments.at_vote(self._rank_state)]

    patch.setattr(SpareDrill, "before_vote", before_vote)


def no_break_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_replay.StepReplayer, "break_off", lambda self, number, reported: None)


@pytest.fixture(autouse=True)
def saving(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spare saves nothing, and changes torch for that, for good: its process ends with the step."""
    monkeypatch.setattr(torch, "save", torch.save)


def test_a_spare_that_does_the_same_is_called_so() -> None:
    reported = verdict("")
    assert (reported.verdict, reported.detail, reported.collectives) == (DrillVerdict.SAME, "", 1)


@pytest.mark.parametrize(
    ("how", "detail", "switch_off"),
    [
        ("collective", "the input to allreduce number 0", no_inputs),
        ("gradient", "extra/parameter/weight/gradient is not the same", no_gradients),
        ("buffer", "net/buffer/2.running_mean is not the same", no_buffers),
        ("state", "net/parameter/0.weight is not the same", no_state),
        ("stream", "the random stream 'torch' is not the same", no_streams),
        ("redo", "its redo does not: the input to allreduce number 0", no_redo),
        ("entered", "its redo does not: the input to allreduce number 0", no_break_in_the_middle),
    ],
)
def test_what_only_one_part_sees(how: str, detail: str, switch_off: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = verdict(how)
    assert reported.verdict is DrillVerdict.DIFFERENT and detail in reported.detail, reported
    with monkeypatch.context() as patch:
        switch_off(patch)
        without = verdict(how)
    assert (without.verdict, without.detail) == (DrillVerdict.SAME, ""), "another part sees it, too"
