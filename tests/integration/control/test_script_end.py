"""The end of a script: whatever way it ends, nothing is lost that Python would have written, and its exit code counts."""

from __future__ import annotations

import functools
import gzip
import os
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
import torch
from tests.integration.processes import wait_until
from tests.integration.training import LONG, Outcome, Training, training, understudy
from tests.message_texts import has
from torch.distributed.checkpoint.state_dict_loader import load

from understudy.common.names import page_path
from understudy.links.page import PageReader
from understudy.messages import agents, forming, losses, recoveries

__all__ = ["training"]

RUN = ["-m", "understudy.cli", "run", "--nproc-per-node", "2", "--spares", "0", "--drill", "off", "--run-dir", "FOLDER/run"]
WHOLE = "".join(f"line {number}\n" for number in range(20))


def ended(training: Training, way: str) -> Outcome:
    return training.start(RUN, "last_words.py", way).ends()


def is_whole(folder: Path, rank: int) -> None:
    for name in ("text", "stdio", "thread", "executor", "finalized", "generator", "owned"):
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
@pytest.mark.parametrize(("way", "code"), [("falls through", 0), ("raise", 1)])
def test_ranks_that_end_together_lose_nothing(training: Training, way: str, code: int) -> None:
    outcome = ended(training, way)
    assert outcome.code == code, outcome.output
    for rank in (0, 1):
        is_whole(outcome.folder, rank)


@pytest.mark.parametrize(("way", "code"), [("exit 3", 3), ("raise alone", 1)])
def test_a_rank_that_fails_loses_nothing(training: Training, way: str, code: int) -> None:
    outcome = ended(training, way)
    assert outcome.code == code, outcome.output
    assert has(outcome.output, losses.SCRIPT_FAILED)
    is_whole(outcome.folder, 1)


def test_an_error_in_an_exit_handler_is_printed_and_no_failure(training: Training) -> None:
    outcome = ended(training, "error in a handler")
    assert outcome.code == 0, outcome.output
    assert "UnsupportedOperation: fileno" in outcome.output
    is_whole(outcome.folder, 1)


def test_a_crash_in_an_exit_handler_is_reported(training: Training) -> None:
    outcome = ended(training, "crash in a handler")
    assert outcome.code == 128 + 11, outcome.output
    assert has(outcome.output, agents.CUT_OFF, how="rank 1 w1 with SIGSEGV")


def launched(training: Training, script: str, *words: str, ranks: int = 2, spares: int = 0, flags: tuple[str, ...] = ()) -> Outcome:
    command = ["-m", "understudy.cli", "run", "--nproc-per-node", str(ranks), "--spares", str(spares), "--drill", "off", *flags]
    return training.start([*command, "--run-dir", "FOLDER/run"], script, *words).ends()


@pytest.mark.parametrize("way", ["os._exit(0)", "sys.exit(0)", "sys.exit(256)", "sys.exit(None)", "sys.exit(False)"])
@pytest.mark.parametrize("joined", ["joined", "alone"])
def test_every_way_to_end_well_is_success(training: Training, way: str, joined: str) -> None:
    outcome = launched(training, "endings.py", way, joined)
    assert outcome.code == 0, outcome.output
    assert outcome.incidents == []


@pytest.mark.parametrize(("way", "code"), [("sys.exit(7)", 7), ("sys.exit(-1)", 255), ("sys.exit('words')", 1)])
def test_every_other_exit_code_is_a_failure(training: Training, way: str, code: int) -> None:
    outcome = launched(training, "endings.py", way, "joined")
    assert outcome.code == code, outcome.output
    assert has(outcome.output, losses.SCRIPT_FAILED)


def test_a_rank_that_exits_with_0_while_the_others_need_it_is_replaced(training: Training) -> None:
    outcome = launched(training, "endings.py", "os._exit(0)", "one rank", spares=1)
    assert outcome.code == 0, outcome.output
    (incident,) = outcome.incidents
    assert [one["rank"] for one in incident["ranks"]] == [1]


def test_a_job_that_loses_ranks_before_all_have_joined_restarts_so_often_and_no_more(training: Training) -> None:
    outcome = launched(training, "endings.py", "os._exit(7)", "never joins")
    assert outcome.code == 1, outcome.output
    assert has(outcome.output, forming.RESTARTS, restarts=1)
    assert has(outcome.output, recoveries.LOST_AGAIN, rank=1, times=3)


def test_a_loss_while_another_rank_prepares_restarts_the_job(training: Training) -> None:
    outcome = launched(training, "endings.py", "sys.exit(0)", "lost once", spares=1)
    assert outcome.code == 0, outcome.output
    assert has(outcome.output, forming.RESTARTS, restarts=1)


@pytest.mark.parametrize("words", ["continue", "quit", ""])
def test_ranks_wait_for_one_that_is_in_a_debugger(training: Training, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its input is the command's, as under torchrun. The hang limit is over before it goes on."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as given, os.fdopen(writing, "wb") as typed:
        command = ["-m", "understudy.cli", "run", "--nproc-per-node", "2", "--spares", "1", "--drill", "off", "--run-dir", "FOLDER/run"]
        with monkeypatch.context() as starting:
            starting.setattr(subprocess, "Popen", functools.partial(subprocess.Popen, stdin=given))
            job = training.start([*command, "--hang-limit", "2", "--alone-limit", "2"], "endings.py", "sys.exit(0)", "breakpoint")
        job.wait_for("(Pdb)")
        pages = [PageReader(page_path(job.folder / "run", f"w{rank}")) for rank in range(2)]
        wait_until(lambda: any(time.monotonic() - page.read().since > 4.0 for page in pages), "twice the limit", LONG)
        typed.write(f"{words}\n".encode() if words else b"")
        typed.close()
        outcome = job.succeeds()
    assert outcome.incidents == [] and "after the breakpoint" in outcome.output


def test_a_worker_that_hands_its_rank_over_writes_what_it_has_appended_and_runs_no_exit_handler(training: Training) -> None:
    command = ["-m", "understudy.cli", "run", "--nproc-per-node", "2", "--spares", "1", "--no-replenish", "--drill", "off"]
    job = training.start([*command, "--run-dir", "FOLDER/run"], "endings.py", "sys.exit(0)", "moves")
    wait_until(lambda: all((job.folder / f"at-{rank}").exists() for rank in (0, 1)), "the fifth step", LONG)
    wait_until(lambda: [spare["state"] for spare in job.status()["spares"]] == ["warm"], "a spare", LONG)
    answer = understudy("migrate", "--rank", "1", "--run-dir", str(job.folder / "run"))
    assert answer.returncode == 0, answer.stderr
    (job.folder / "go on").touch()
    outcome = job.succeeds()
    assert len(outcome.incidents) == 1
    for rank in (0, 1):
        lines = (outcome.folder / f"record-{rank}").read_text().split()
        assert list(map(int, lines)) == list(range(1, 11)), lines  # in their order: the leaver writes before its newcomer does
    assert sorted(path.name for path in outcome.folder.glob("left-*")) == ["left-0-w0", "left-1-w2"]
    assert sorted(path.name for path in outcome.folder.glob("thread-*")) == ["thread-0", "thread-1"]
