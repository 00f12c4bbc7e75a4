"""What a newcomer's script reads is noticed until the state is there, and what it changes behind that is put back."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from understudy.worker.errors import UnderstudyError
from understudy.worker.reads import Kept, Reads
from understudy.worker.state import State

METHODS = [(nn.Module, name) for name in ("state_dict", "__reduce_ex__", "train", "load_state_dict", "named_parameters")]


class Here:
    def __init__(self) -> None:
        self.first = nn.Linear(2, 2)
        self.model = nn.Sequential(self.first, nn.Dropout(0.5))
        self.teacher, self.average = (nn.Linear(2, 2).requires_grad_(False) for _ in range(2))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        self.state = State()
        for name in ("model", "optimizer", "schedule", "average"):
            self.state.register(name, getattr(self, name))
        self.state.set_up()
        self.seen: list[tuple[str, bool]] = []
        self.reads = Reads(self.state, self.note)

    def note(self, what: str, kept: bool) -> None:
        self.model.state_dict()  # its own reading is not the script's
        self.seen.append((what, kept))


@pytest.fixture
def here() -> Iterator[Here]:
    before = [vars(kind).get(name) for kind, name in METHODS]
    made = Here()
    made.reads.install()
    made.reads.behind = True
    yield made
    made.reads.remove()
    assert [vars(kind).get(name) for kind, name in METHODS] == before
    assert "__reduce_ex__" not in vars(Optimizer)
    assert not nn.modules.module._global_forward_pre_hooks


OTHER = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).state_dict()
READS: list[tuple[Callable[[Here], object], str, bool]] = [
    (lambda here: here.model.state_dict(), "Sequential", True),
    (lambda here: here.first.state_dict(), "Linear", True),
    (lambda here: here.optimizer.state_dict(), "Adam", True),
    (lambda here: copy.deepcopy(here.model), "Sequential", True),
    (lambda here: pickle.dumps(here.optimizer), "Adam", True),
    (lambda here: torch.save({"all": here.model}, io.BytesIO()), "Sequential", True),
    (lambda here: here.model(torch.ones(1, 2)), "Sequential", False),
    (lambda here: nn.Sequential(here.first)(torch.ones(1, 2)), "Sequential", False),  # another one with its parameters
    (lambda here: here.model.eval(), "Sequential", False),
    (lambda here: here.model.train(False), "Sequential", False),
    (lambda here: here.model.train(mode=False), "Sequential", False),
    (lambda here: next(here.model.parameters()), "Sequential", False),
    (lambda here: here.model.requires_grad_(False), "Sequential", False),
    (lambda here: here.model[1].eval(), "Dropout", False),  # without a tensor
    (lambda here: here.model.load_state_dict(OTHER), "Sequential", False),
    (lambda here: here.schedule.state_dict(), "StepLR", True),
    (lambda here: here.average.state_dict(), "Linear", True),  # not trained
    (lambda here: here.average(torch.ones(1, 2)), "Linear", False),
]


@pytest.mark.parametrize(("read", "what", "kept"), READS)
def test_a_read_is_noticed_before_it_happens(here: Here, read: Callable[[Here], object], what: str, kept: bool) -> None:
    read(here)
    assert here.seen[0] == (what, kept)
    here.seen.clear()
    here.reads.behind = False
    here.model.train()
    read(here)
    assert [found for found in here.seen if not found[1]] == []  # what is not kept does not matter in front of what is over
    assert bool(here.seen) == kept
    here.reads.remove()
    seen = len(here.seen)
    here.model.train()
    read(here)
    assert len(here.seen) == seen


def test_the_state_that_arrives_is_what_is_read(here: Here) -> None:
    def arrive(what: str, kept: bool) -> None:
        here.reads.remove()
        with torch.no_grad():
            here.first.weight.fill_(3.0)

    here.reads._read = arrive
    assert torch.equal(here.model.state_dict()["0.weight"], torch.full((2, 2), 3.0))


def test_what_is_not_read_is_not_noticed(here: Here) -> None:
    here.model.train()  # it is
    here.optimizer.zero_grad()
    here.teacher(torch.ones(1, 2))
    here.teacher.state_dict()
    with here.reads.ours():
        here.model.state_dict()
    other = threading.Thread(target=here.model.state_dict)
    other.start()
    other.join()
    assert here.seen == []


def test_what_is_bound_again_behind_the_arrival_is_put_back(here: Here) -> None:
    """As by a script that goes back to an earlier state where its loss has grown."""
    here.reads.remove()
    other = copy.deepcopy(here.optimizer.state_dict())
    for held in other["state"].values():
        held["exp_avg"].fill_(7.0)
    kept, moment = Kept(here.state), here.optimizer.state[here.first.weight]["exp_avg"]
    content = moment.clone()
    here.optimizer.load_state_dict(other)
    here.model.__dict__["own"] = object()
    assert here.optimizer.state[here.first.weight]["exp_avg"] is not moment
    kept.put_back()
    assert here.optimizer.state[here.first.weight]["exp_avg"] is moment and torch.equal(moment, content)
    assert "own" in here.model.__dict__  # what donors would not have given either
    assert kept.put_back() == []
    here.first.weight = nn.Parameter(torch.ones(2, 2))
    with pytest.raises(UnderstudyError, match="weight was replaced between two transactions"):
        kept.put_back()


def test_a_class_of_an_extension_is_left_alone() -> None:
    state = State()
    state.values["array"] = array = bytearray()
    reads = Reads(state, lambda what, kept: None)
    reads._wrap(type(array), "copy")
    reads.remove()


def test_what_changes_behind_the_arrival_is_put_back(here: Here) -> None:
    here.reads.remove()
    weight = here.first.weight
    memory, content, rate = weight.data_ptr(), weight.detach().clone(), here.optimizer.param_groups[0]["lr"]
    kept = Kept(here.state)
    assert kept.put_back() == []
    weight.data = torch.full((2, 2), 5.0)
    with torch.no_grad():
        here.optimizer.state[weight]["exp_avg"].numpy().fill(7.0)  # no counter sees it
    here.schedule.step()
    here.model.eval()
    changed = kept.put_back()
    assert "model/parameter/0.weight" not in changed  # its own memory has not changed, and it stands there again
    assert any(entry.endswith("exp_avg") for entry in changed)
    assert "schedule/value" in changed and "optimizer/settings" in changed
    assert weight.data_ptr() == memory and torch.equal(weight, content)
    assert here.optimizer.param_groups[0]["lr"] == rate
    assert not torch.any(here.optimizer.state[weight]["exp_avg"] == 7.0)
    assert here.model.training
    assert kept.put_back() == []
