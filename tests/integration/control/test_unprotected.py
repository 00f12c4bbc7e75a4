"""A script that makes its own default process group, as trainers do: its user reads at once that no rank of it is protected."""

from __future__ import annotations

from pathlib import Path

from tests.integration.processes import marked
from tests.integration.training import Training
from tests.message_texts import codes, has

from understudy.messages import forming, grades, script

KILLED = """
import os, signal, sys
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(8):
    value = torch.ones(2) * dist.get_rank()
    dist.all_reduce(value)
    killed = Path(sys.argv[1]) / "killed"
    if step == 4 and dist.get_rank() == 1 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
print("done", flush=True)
"""
JOINS_LATE = """
import torch.distributed as dist
import understudy

dist.init_process_group("gloo")
understudy.join()
"""


def test_its_first_line_and_the_report_of_a_loss_mention_it(tmp_path: Path) -> None:
    with marked() as mark:
        path = tmp_path / "trainer.py"
        path.write_text(KILLED)
        outcome = Training(tmp_path, mark).begin(str(path)).ends()
        assert outcome.code == 0 and outcome.output.count("done") == 2, outcome.output
        (incident,) = outcome.incidents
    assert outcome.output.count(script.OWN_PROCESS_GROUP.code + ":") == 1
    assert has(outcome.output, script.OWN_PROCESS_GROUP, where=f"{path}:7")
    of_the_job = [code for code in codes(outcome.output) if code.startswith(("US1", "US4"))]
    assert of_the_job[0] == script.OWN_PROCESS_GROUP.code, "nothing about the job is reported before it"
    assert has(outcome.output, forming.RESTARTS_UNPROTECTED, restarts=1)
    assert incident["grade"] == "unproven" and has(incident["why"], grades.NOT_PROTECTED)


def test_to_join_after_it_is_an_error(tmp_path: Path) -> None:
    with marked() as mark:
        path = tmp_path / "late.py"
        path.write_text(JOINS_LATE)
        outcome = Training(tmp_path, mark).begin(str(path)).ends()
    assert outcome.code != 0 and has(outcome.output, script.GROUP_BEFORE_JOIN), outcome.output
