"""The conformance suite itself, with real processes, on scripts that are wrong on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import runs
from tests.conformance.scripts import FOLDER, read
from tests.conformance.suite import Result, attempt

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


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        pytest.param("loss += ours and step == 2", "silent", marks=pytest.mark.gate),
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
