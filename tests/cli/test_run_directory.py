"""A run's folder: made once, and never shared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.message_texts import refused

from understudy.cli.run_directory import NoRun, RunDirectory
from understudy.common.names import JOB
from understudy.messages import asking


def test_many_that_start_at_once_in_one_folder_get_one_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods whose working directory is on a shared disk: each is process 1 of its container, in the same second."""
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: RunDirectory.create(None, "20261127-011742-1").path, range(24)))
    assert len(set(made)) == 24 and all((path / "workers").is_dir() for path in made)
    assert made[0].parent == tmp_path / "understudy-runs" and min(path.name for path in made) == "20261127-011742-1"


def test_a_folder_that_is_named_is_taken_once(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "here", "job")
    (run.path / JOB).write_text("{}")
    with refused(NoRun, asking.RUN_DIRECTORY_TAKEN, path=str(run.path)):
        RunDirectory.create(tmp_path / "here", "job")


def test_a_folder_that_cannot_be_made_is_named_with_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/proc")  # not writable, even for root
    with refused(NoRun, asking.NO_RUN_DIRECTORY, path="/proc/understudy-runs"):
        RunDirectory.create(None, "job")
    with refused(NoRun, asking.NO_RUN_DIRECTORY, path="/proc/here"):
        RunDirectory.create(Path("here"), "job")
