"""What a newcomer's script saves or copies of its state is noticed before it happens, and nothing else is."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from understudy.worker.script.reads import Reads
from understudy.worker.state.registry import State

SAVE = torch.save


class Here:
    def __init__(self) -> None:
        self.first = nn.Linear(2, 2)
        self.model = nn.Sequential(self.first, nn.Dropout(0.5))
        self.average, self.teacher = (nn.Linear(2, 2).requires_grad_(False) for _ in range(2))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.state = State()
        for name in ("model", "optimizer", "average"):
            self.state.register(name, getattr(self, name))
        self.seen: list[str] = []
        self.reads = Reads(self.state, self.note)

    def note(self, what: str) -> None:
        self.model.state_dict()  # its own reading is not the script's
        self.seen.append(what)


@pytest.fixture
def here() -> Iterator[Here]:
    before = vars(nn.Module)["state_dict"], vars(Optimizer)["state_dict"]
    made = Here()
    made.reads.install()
    yield made
    made.reads.remove()
    assert (vars(nn.Module)["state_dict"], vars(Optimizer)["state_dict"]) == before
    assert "__reduce_ex__" not in vars(nn.Module) and "__reduce_ex__" not in vars(Optimizer)
    assert torch.save is SAVE


READS: list[tuple[Callable[[Here], object], str]] = [
    (lambda here: here.model.state_dict(), "Sequential"),
    (lambda here: here.first.state_dict(), "Linear"),
    (lambda here: here.average.state_dict(), "Linear"),  # not trained
    (lambda here: nn.Sequential(here.first).state_dict(), "Sequential"),  # another one with its parameters
    (lambda here: here.optimizer.state_dict(), "Adam"),
    (lambda here: copy.deepcopy(here.model), "Sequential"),
    (lambda here: pickle.dumps(here.optimizer), "Adam"),
]


@pytest.mark.parametrize(("read", "what"), READS)
def test_it_is_noticed_until_that_is_over(here: Here, read: Callable[[Here], object], what: str) -> None:
    read(here)
    assert here.seen[0] == what
    here.reads.remove()
    here.seen.clear()
    read(here)
    assert here.seen == []


def test_a_file_is_not_opened(here: Here, tmp_path: Path) -> None:
    def refuse(what: str) -> None:
        raise RuntimeError(what)

    path = tmp_path / "best.pt"
    torch.save({"epoch": 1}, path)
    content = path.read_bytes()
    here.reads._read = refuse
    for thing in (here.model, {"all": [here.average]}, (here.optimizer,)):
        with pytest.raises(RuntimeError):
            torch.save(thing, path)
    assert path.read_bytes() == content


def test_what_is_not_saved_or_copied_is_not_noticed(here: Here) -> None:
    here.model.eval()
    here.model(torch.ones(1, 2)).sum().backward()
    here.optimizer.step()
    here.teacher.state_dict()
    torch.save({"teacher": here.teacher, "epoch": 1}, io.BytesIO())
    with here.reads.ours():
        here.model.state_dict()
    other = threading.Thread(target=here.model.state_dict)
    other.start()
    other.join()
    assert here.seen == []
