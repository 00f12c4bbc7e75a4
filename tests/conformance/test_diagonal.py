"""A diagonal of the conformance suite, and the suite itself on scripts that are wrong on purpose, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import runs
from tests.conformance.scripts import FOLDER, read
from tests.conformance.suite import Result, attempt

# Of most chapters and classes one, also of what is refused or told.
DIAGONAL = (
    "ddp_plain",
    "ddp_two_forwards_in_each_step",
    "ddp_hook_powersgd",
    "moco_momentum_encoder",
    "evaluation_leaves_eval_mode",
    "optimizer_adamw_learning_rate_is_a_tensor",
    "async_work_waited_for_in_next_step",
    "hsdp_plain",
    "pipeline_1f1b",
    "like_nanogpt_train",
    "prefetched_into_a_global",
    "arguments_changed_while_training",
    "mixing_from_own_random",
)

SELDOM = {
    "prefetched_into_a_global",
    "arguments_changed_while_training",
    "mixing_from_own_random",
    "moco_momentum_encoder",
    "evaluation_leaves_eval_mode",
    "ddp_two_forwards_in_each_step",
}  # time; `make conformance` has them
assert set(DIAGONAL) >= SELDOM

WRONG = '''"""Wrong on purpose."""

# ranks: 2
# expect: bitwise
# limit: {limit}

import os, sys
sys.path.insert(0, {folder!r})
import torch
from _trace import Trace
import understudy

job = understudy.join()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer)
trace = Trace(job.rank)
ours = "UNDERSTUDY_RUN_DIR" in os.environ


@job.step
def train_step():
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(4):
    loss = train_step()
    {line}
    trace.line(f"step {{job.committed}}", loss=loss)

trace.final(model=model, optimizer=optimizer)
'''


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.whole] * (name in SELDOM)) for name in DIAGONAL])
def test_diagonal(name: str, tmp_path: Path) -> None:
    assert _attempt(FOLDER / f"{name}.py", tmp_path).wrong == ""


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("loss += ours and step == 2", "silent"),
        ("ours and step == 2 and os.abort()", "aborted"),
    ],
)
def test_what_is_wrong_on_purpose_is_found(line: str, verdict: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG.format(line=line, folder=str(FOLDER), limit=120))
    result = _attempt(path, tmp_path)
    assert result.found.verdict == verdict, result.found
    assert result.wrong


def test_a_run_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "FOR_A_DRILL", 0.0)  # it would only be waited for
    path = tmp_path / "wrong.py"
    path.write_text(WRONG.format(line="import threading; threading.Event().wait()", folder=str(FOLDER), limit=10))
    ran = runs.understudy(read(path), tmp_path / "run")
    assert ran.hung  # and `marked` has waited for the end of every process of it


def _attempt(path: Path, folder: Path) -> Result:
    return attempt(read(path), folder, lambda script, what: None, alone=False)
