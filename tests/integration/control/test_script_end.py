"""The end of a script: whatever way it ends, nothing is lost that Python would have written, and its exit code counts."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest
import torch
from tests.integration.training import Outcome, Training, training
from tests.said import said
from torch.distributed.checkpoint.state_dict_loader import load

from understudy.messages import agents, losses

__all__ = ["training"]

RUN = ["-m", "understudy.cli", "run", "--nproc-per-node", "2", "--spares", "0", "--drill", "off", "--run-dir", "FOLDER/run"]
WHOLE = "".join(f"line {number}\n" for number in range(20))


def ended(training: Training, way: str) -> Outcome:
    return training.start(RUN, "last_words.py", way).ends()


def is_whole(folder: Path, rank: int) -> None:
    for name in ("text", "stdio", "thread", "executor", "finalized", "generator"):
        assert (folder / f"{name}-{rank}").read_text() == WHOLE, name
    for name in ("gzip", "gziptext"):
        with gzip.open(folder / f"{name}-{rank}", "rt") as file:
            assert file.read() == WHOLE, name
    assert zipfile.ZipFile(folder / f"zip-{rank}").read("lines").decode() == WHOLE
    assert b"__main__" in (folder / f"pickled-{rank}").read_bytes()
    state = {"weights": torch.zeros(1_000_000)}
    load(state, checkpoint_id=folder / f"checkpoint-{rank}", no_dist=True)
    assert state["weights"].eq(1).all()


@pytest.mark.gate
def test_a_script_that_comes_to_its_end_loses_nothing(training: Training) -> None:
    outcome = ended(training, "falls through")
    assert outcome.code == 0, outcome.output
    for rank in (0, 1):
        is_whole(outcome.folder, rank)


@pytest.mark.gate
def test_ranks_that_fail_together_lose_nothing(training: Training) -> None:
    outcome = ended(training, "raise")
    assert outcome.code == 1, outcome.output
    for rank in (0, 1):
        is_whole(outcome.folder, rank)


@pytest.mark.parametrize(("way", "code"), [("exit 3", 3), ("raise alone", 1)])
def test_a_rank_that_fails_loses_nothing(training: Training, way: str, code: int) -> None:
    outcome = ended(training, way)
    assert outcome.code == code, outcome.output
    assert said(outcome.output, losses.SCRIPT_FAILED)
    is_whole(outcome.folder, 1)


def test_an_error_in_an_exit_handler_is_printed_and_no_failure(training: Training) -> None:
    outcome = ended(training, "error in a handler")
    assert outcome.code == 0, outcome.output
    assert "UnsupportedOperation: fileno" in outcome.output
    is_whole(outcome.folder, 1)


def test_a_crash_in_an_exit_handler_is_reported(training: Training) -> None:
    outcome = ended(training, "crash in a handler")
    assert outcome.code == 128 + 11, outcome.output
    assert said(outcome.output, agents.CUT_OFF, how="rank 1 w1 with SIGSEGV")
