"""Gradients that a step finds and leaves alone, as one does that only evaluates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.message_texts import refused
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from understudy.messages import registered
from understudy.worker.doctor.base import world
from understudy.worker.errors import UsageError
from understudy.worker.state.gradients import Gradients


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(model(torch.ones(2)).sum())


DONE: dict[str, Callable[[nn.Module, torch.optim.Optimizer], object]] = {
    "nothing": lambda model, optimizer: None,
    "an evaluation": lambda model, optimizer: model(torch.zeros(2)),
    "a step that drops them": train,
    "a step that adds to them": lambda model, optimizer: torch.autograd.backward(model(torch.ones(2)).sum()),
    "a step that drops them and makes none": lambda model, optimizer: optimizer.zero_grad(),
}


@pytest.fixture(params=[False, True], ids=["plain", "DTensors"])
def model(request: pytest.FixtureRequest) -> Iterator[nn.Module]:
    """A DTensor counts its changes apart from the memory below."""
    made = nn.Linear(2, 1)
    if not request.param:
        yield made
        return
    with world():
        fully_shard(made, mesh=init_device_mesh("cpu", (1,)))
        yield made


def dropping(model: nn.Module) -> tuple[torch.optim.Optimizer, Gradients, list[nn.Parameter]]:
    """Return the state after some steps, all of which have dropped what they found, and the parameters: shards where it is sharded."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    gradients = Gradients(lambda: parameters)
    for _ in range(3):
        gradients.begin()
        train(model, optimizer)
        gradients.learn(carried=False)
    assert not gradients.matter
    return optimizer, gradients, parameters


@pytest.mark.parametrize("withheld", [False, True])
@pytest.mark.parametrize("what", DONE)
def test_a_redo_begins_with_the_gradients_that_its_attempt_has_left_alone(what: str, withheld: bool, model: nn.Module) -> None:
    optimizer, gradients, parameters = dropping(model)
    if withheld:
        gradients.withhold(listed=False)
    gradients.begin()
    before = [parameter.grad for parameter in parameters]
    DONE[what](model, optimizer)
    if what == "a step that adds to them":
        with refused(UsageError, registered.GRADIENTS_NOT_KEPT):
            for parameter in parameters:
                gradients.left(parameter)
        if withheld:
            with refused(UsageError, registered.GRADIENTS_NOT_GIVEN):
                gradients.settle()
        return
    alone = what in ("nothing", "an evaluation")
    assert all(now is (then if alone else None) for now, then in zip(map(gradients.left, parameters), before, strict=True))
    gradients.settle()


PARTS = {"all": [0, 1, 2, 3], "the first": [0, 1], "the second": [2, 3], "one": [1], "none": []}


@dataclass(frozen=True)
class Step:
    """The actions of a script in one step; `section`: there is a section before it."""

    what: str
    dropped: str
    computed: str
    stepped: bool
    section: bool
    lost: list[int] | None  # a loss: how far in the step each rank is, of those that are left


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["drop", "drop", "drop", "drop in part", "evaluate", "add", "replace", "zero"]),
        st.sampled_from(sorted(PARTS)),
        st.sampled_from(sorted(PARTS)),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
        st.none() | st.lists(st.integers(-1, 3), min_size=12, max_size=12),
    ),
    min_size=3,
    max_size=12,
)


class Rank:
    """What of a rank has to do with gradients, in the order in which it happens."""

    def __init__(self) -> None:
        self.parameters = [nn.Parameter(torch.ones(1)) for _ in range(4)]  # two optimizers' worth
        self.gradients = Gradients(lambda: self.parameters)
        self.snapshot: list[tuple[torch.Tensor, torch.Tensor] | None] = []
        self.listed = True  # the copy of its last vote lists gradients

    def begin(self) -> None:
        held = map(self.gradients.of, self.parameters)
        self.snapshot = [(g, g.clone()) if g is not None and self.gradients.matter else None for g in held]
        self.gradients.begin()

    def run(self, step: Step, far: int = 3) -> None:
        """`far`: not at all, what it drops, also what it computes, up to its vote."""
        if far > 0:
            self.clear(step)
        if far > 1 and step.what != "evaluate" and PARTS[step.computed]:
            torch.autograd.backward(torch.stack([self.parameters[number] * 2 for number in PARTS[step.computed]]).sum())
        if far > 2:
            self.gradients.settle()

    def clear(self, step: Step) -> None:
        for number in PARTS["all" if step.what == "drop" else step.dropped]:
            gradient = self.parameters[number].grad
            if step.what in ("drop", "drop in part"):
                self.parameters[number].grad = None
            elif step.what == "replace":
                self.parameters[number].grad = torch.full((1,), 3.0)
            elif step.what == "zero" and gradient is not None:
                gradient.zero_()

    def restore(self) -> None:
        for parameter, noted in zip(self.parameters, self.snapshot, strict=True):
            kept = noted if not self.gradients.is_withheld(parameter) else None
            parameter.grad = kept[0] if kept is not None else self.gradients.left(parameter)
            if kept is not None:
                kept[0].copy_(kept[1])
        self.gradients.begin()

    def commit(self, step: Step) -> None:
        carried = not step.stepped or step.what == "evaluate"
        self.listed = carried or self.gradients.matter or self.gradients.live_on()
        self.gradients.learn(carried)

    def held(self) -> list[float | None]:
        return [parameter.grad.item() if parameter.grad is not None else None for parameter in self.parameters]

    def made(self) -> list[float | None]:
        made = map(self.gradients.made, self.parameters)
        return [gradient.item() if gradient is not None else None for gradient in made]

    def view(self) -> tuple[object, ...]:
        known = self.gradients
        held = [known.of(parameter) for parameter in self.parameters]
        return known.matter, known.kept, known.dropped, [gradient.item() if gradient is not None else None for gradient in held]

    def newcomer(self) -> Rank:
        """As it is given this one's gradients."""
        made = Rank()
        mine, theirs = self.gradients, made.gradients
        theirs.matter, theirs.kept, theirs.dropped = mine.matter, mine.kept, mine.dropped
        made.listed = self.listed
        if mine.matter and self.listed:
            for old, new in zip(self.parameters, made.parameters, strict=True):
                gradient = mine.of(old)
                new.grad = gradient.clone() if gradient is not None else None
        return made


@given(STEPS)
@settings(max_examples=1000, deadline=None)
def test_gradients_of_before_a_recovery(steps: list[Step]) -> None:
    """Whatever a script does, and wherever its ranks are at a loss: all have the same view of what matters, and compute what they would
    have computed. Or it is refused."""
    undisturbed, ranks = Rank(), [Rank()]
    for step in steps:
        before: dict[Rank, list[float | None] | None] = {}  # the gradients that an attempt which reached its vote had made
        for rank in (undisturbed, *ranks):
            if step.section:
                rank.gradients.keep()
        try:
            inside = []  # those that the loss has caught in the step, and not before it
            if step.lost is not None:
                inside = [rank for rank, far in zip(ranks, step.lost, strict=False) if far >= 0]
                for rank, far in zip(ranks, step.lost, strict=False):
                    if rank in inside:
                        rank.begin()
                        rank.run(step, far)
                        before[rank] = rank.made() if far > 2 else None
                        rank.restore()
                for rank in ranks:
                    rank.gradients.withhold(rank.listed)
                ranks.append(ranks[-1].newcomer())
            for rank in (undisturbed, *ranks):
                if rank not in inside:
                    rank.begin()
                rank.run(step)
        except UsageError:
            return
        for rank in ranks:
            assert rank.view() == ranks[0].view()
            assert rank.made() == ranks[0].made()
            assert before.get(rank) in (None, rank.made()), "a redo proves itself by that"
            computed = set(PARTS[step.computed]) if step.what != "evaluate" else set()
            assert all(rank.held()[number] == undisturbed.held()[number] for number in computed)
        for rank in (undisturbed, *ranks):
            rank.commit(step)
        assert all(rank.view() == ranks[0].view() for rank in ranks)


def test_steps_that_drop_all_are_never_refused(model: nn.Module) -> None:
    optimizer, gradients, parameters = dropping(model)
    for _ in range(3):
        gradients.withhold(listed=True)
        assert all(gradients.of(parameter) is None for parameter in parameters)
        gradients.begin()
        train(model, optimizer)
        gradients.settle()
        gradients.learn(carried=False)
        assert not gradients.matter
        assert all(gradients.of(parameter) is not None for parameter in parameters)
