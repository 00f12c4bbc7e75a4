"""The parts of the integration with Lightning that need no Lightning."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tests.message_texts import refused

from understudy.common.names import INTEGRATION_VARIABLE
from understudy.messages import integrations
from understudy.worker.__main__ import _take_over
from understudy.worker.errors import UsageError
from understudy.worker.integrations.attributes import PlainAttributes
from understudy.worker.integrations.lightning.files import FreeNames
from understudy.worker.integrations.lightning.metrics import Outputs
from understudy.worker.integrations.lightning.points import Lightning
from understudy.worker.integrations.lightning.takeover import trainer_of


class Files:
    """The methods of a file system of fsspec that are used."""

    def exists(self, name: str) -> bool:
        return Path(name).exists()

    def makedirs(self, name: str, exist_ok: bool) -> None:
        Path(name).mkdir(parents=True, exist_ok=exist_ok)

    def touch(self, name: str) -> None:
        Path(name).touch()

    def rm(self, name: str) -> None:
        Path(name).unlink()

    def glob(self, pattern: str) -> list[str]:
        folder, _, name = pattern.rpartition("/")
        return [str(path) for path in Path(folder).glob(name)]


def saving(folder: Path) -> tuple[Any, Any]:
    """Return a callback that saves, and the trainer of rank 0."""
    callback = SimpleNamespace(_fs=Files(), dirpath=str(folder))
    strategy = SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision)
    return callback, SimpleNamespace(is_global_zero=True, strategy=strategy, callbacks=[callback])


@pytest.mark.parametrize("newcomer", [False, True])
def test_a_name_that_an_interrupted_attempt_has_found_free_is_free_again(newcomer: bool, tmp_path: Path) -> None:
    callback, trainer = saving(tmp_path)
    names, file = FreeNames(), tmp_path / "a.ckpt"
    names.attempt(3)
    assert not names.file_exists(callback, file, trainer)
    file.write_text("of the interrupted attempt")
    assert names.file_exists(callback, file, trainer), "the same attempt has written it"
    again = FreeNames() if newcomer else names
    again.attempt(3)
    assert not again.file_exists(callback, file, trainer)
    again.committed(trainer, newcomer)
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"], "no mark is left"
    again.attempt(4)
    assert again.file_exists(callback, file, trainer), "of a section that is committed"


def test_a_file_of_another_run_is_not_free(tmp_path: Path) -> None:
    callback, trainer = saving(tmp_path)
    (tmp_path / "a.ckpt").write_text("of another run")
    names = FreeNames()
    for _ in range(2):
        names.attempt(3)
        assert names.file_exists(callback, tmp_path / "a.ckpt", trainer)


def test_marks_of_a_rank_0_that_was_lost_after_its_vote_are_removed_by_its_newcomer(tmp_path: Path) -> None:
    callback, trainer = saving(tmp_path)
    lost = FreeNames()
    lost.attempt(3)
    assert not lost.file_exists(callback, tmp_path / "a.ckpt", trainer)
    newcomer = FreeNames()
    newcomer.attempt(4)
    newcomer.committed(trainer, newcomer=True)
    assert list(tmp_path.iterdir()) == []


def test_attributes_are_set_as_they_were() -> None:
    thing = SimpleNamespace(count=3, best=torch.ones(2), names={"a": [1, None]}, last=deque([1]), _last_time_checked=5.0)
    state = PlainAttributes(thing).state_dict()
    assert state.keys() == {"count", "best", "names", "last"}
    kept = thing.last
    thing.count, thing.more = 4, "late"
    thing.last.append(2)
    PlainAttributes(thing).load_state_dict(state)
    assert thing.last == deque([1])
    assert (thing.count, thing.last is kept, thing._last_time_checked, hasattr(thing, "more")) == (3, True, 5.0, False)


def test_outputs_that_are_large_are_not_kept() -> None:
    outputs = Outputs()
    outputs.put({"loss": torch.ones(()), "size": 3})
    assert outputs.state_dict()["value"]["size"] == 3
    outputs.put({"loss": torch.ones(()), "all": torch.ones(1 << 19)})
    assert outputs.state_dict() == {"value": None}


def test_a_version_that_lacks_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_lightning", package := ModuleType("pytorch_lightning"))
    package.__version__ = "9.1"  # type: ignore[attr-defined]
    name = "pytorch_lightning.loops.fit_loop._FitLoop.on_run_start"
    with refused(UsageError, integrations.LIGHTNING_CHANGED, version="9.1", name=name):
        Lightning("pytorch_lightning").check(SimpleNamespace())


def called_by_a_trainer(function: Callable[[FrameType], Any], module: str, trainer: Any) -> Any:
    """Return what `function` returns for a frame below `Trainer._run`."""

    def inside() -> Any:
        return function(sys._getframe())

    def _run(self: Any) -> Any:
        return inside()

    return FunctionType(_run.__code__, {"__name__": module}, closure=_run.__closure__)(trainer)


@pytest.mark.parametrize("root", ["lightning.pytorch", "pytorch_lightning"])
def test_the_trainer_that_makes_the_group_is_found_in_the_stack(root: str) -> None:
    trainer = object()
    assert called_by_a_trainer(trainer_of, f"{root}.trainer.trainer", trainer) == (root, trainer)
    assert called_by_a_trainer(trainer_of, "a.trainer", trainer) is None


def test_a_trainer_is_left_alone_without_the_integration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTEGRATION_VARIABLE, "none")
    assert not called_by_a_trainer(lambda frame: _take_over(frame, "gloo"), "lightning.pytorch.trainer.trainer", object())
