"""What a newcomer's script saves or copies of its state is noticed before it happens, and nothing else is."""

from __future__ import annotations

import builtins
import copy
import io
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.message_texts import arguments_of, refused
from torch import nn
from torch.distributed import checkpoint as _checkpoint
from torch.optim import Optimizer

from understudy.messages import set_up
from understudy.worker.errors import UnderstudyError
from understudy.worker.guards.file_access import FileAccessGuard
from understudy.worker.guards.state_reads import Reads
from understudy.worker.state.registry import State

checkpoint: Any = _checkpoint  # for what it does not export
SAVE, OPEN_WRITER = torch.save, torch.serialization._open_zipfile_writer
SAVE_DISTRIBUTED, OPEN = checkpoint.save, builtins.open


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
        self.wrote: list[str] = []
        self.opened = FileAccessGuard()
        self.reads = Reads(self.state, self.opened, self.note, self.wrote.append)
        self.reads.prepare()

    def note(self, what: str) -> None:
        self.model.state_dict()  # its own reading is not the script's
        self.seen.append(what)


@pytest.fixture
def here() -> Iterator[Here]:
    before = vars(nn.Module)["state_dict"], vars(Optimizer)["state_dict"]
    made = Here()
    made.opened.install()
    made.reads.install()
    yield made
    made.reads.remove()
    assert (vars(nn.Module)["state_dict"], vars(Optimizer)["state_dict"]) == before
    assert "__reduce_ex__" not in vars(nn.Module) and "__reduce_ex__" not in vars(Optimizer)
    assert torch.save is SAVE and torch.serialization._open_zipfile_writer is OPEN_WRITER
    assert checkpoint.save is SAVE_DISTRIBUTED and builtins.open is OPEN


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


def test_state_that_is_not_saved_or_copied_is_not_noticed(here: Here) -> None:
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


def test_whatever_goes_to_a_file_by_torch_save_is_noticed(here: Here, tmp_path: Path) -> None:
    """Also under a name that the script has given it before."""
    path = tmp_path / "metrics.pt"
    for save in (torch.save, SAVE):
        save({"loss": 1.0}, path)
        save({"loss": 1.0}, str(path))
    assert len(here.wrote) == 4 and here.wrote[0].startswith(f"{path} at {__file__}:") and here.seen == []
    here.wrote.clear()
    with tempfile.NamedTemporaryFile() as temporary:
        torch.save({"loss": 1.0}, temporary.name)
    torch.save({"loss": 1.0}, "/dev/null")
    here.reads.remove()
    torch.save({"loss": 1.0}, path)
    assert here.wrote == []


def test_a_set_up_that_has_read_a_snapshot_of_the_live_job_saves_no_checkpoint(tmp_path: Path) -> None:
    """It may have come by no loop at all, and be about to save what it takes for the final model."""
    here, snapshot, final = Here(), tmp_path / "snapshot.pt", tmp_path / "final.pt"
    here.opened.install()
    try:
        torch.save(here.model.state_dict(), final)  # as a script may in its set-up
        SAVE({"epoch": 3}, snapshot)
        here.opened._written.clear()
        here.opened.over = snapshot.stat().st_mtime_ns - 1
        before = final.read_bytes()
        torch.load(snapshot)
        for save in (torch.save, SAVE):
            with refused(UnderstudyError, set_up.NOT_SAVED) as caught:
                save(here.model.state_dict(), final)
            reported = arguments_of(caught.value.args[0])
            assert str(reported["file"]).startswith(f"{final} at {__file__}:")
            assert str(snapshot) in str(arguments_of(reported["reason"])["files"])  # and `final`, if both are of one tick of the clock
            assert here.opened.explained(str(caught.value)) == str(caught.value)
        assert final.read_bytes() == before
        here.opened.over = time.time_ns()
        torch.save(here.model.state_dict(), final)  # the snapshot was there when the first workers set up
    finally:
        here.reads.remove()
    assert torch.serialization._open_zipfile_writer is OPEN_WRITER and builtins.open is OPEN


@pytest.mark.parametrize("save", [checkpoint.save, lambda *args, **kwargs: checkpoint.save(*args, **kwargs)], ids=["kept name", "name"])
def test_distributed_checkpoints_are_noticed(here: Here, tmp_path: Path, save: Callable[..., object]) -> None:
    save({"loss": torch.ones(2)}, checkpoint_id=str(tmp_path / "kept"), no_dist=True)
    assert here.seen[0] == "a distributed checkpoint"
    here.reads.remove()
    here.seen.clear()
    save({"loss": torch.ones(2)}, checkpoint_id=str(tmp_path / "later"), no_dist=True)
    assert here.seen == []


def test_files_of_safetensors_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in its place that goes the same way: a function of a global name, which is in Rust there."""
    module = ModuleType("safetensors.torch")
    source = "def save_file(tensors, filename, metadata=None):\n    serialize_file({}, filename, metadata=metadata)\n"
    exec(source, vars(module))
    stock = module.__dict__["serialize_file"] = lambda *args, **kwargs: None
    monkeypatch.setitem(sys.modules, "safetensors.torch", module)
    save_file, here = module.save_file, Here()
    here.reads.install()
    save_file({}, tmp_path / "model.safetensors")
    here.reads.remove()
    assert here.wrote[0].startswith(f"{tmp_path}/model.safetensors at {__file__}:")
    assert module.serialize_file is stock
