"""docs/operate/slurm.md: its commands, as printed, by a user who has only a training script; then a node loses its power."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.faults.harness import ROOT
from tests.integration.processes import wait_until
from tests.integration.training import LONG
from tests.slurm.cluster import Cluster, needs_slurm
from understudy.messages import coverage, recoveries

pytestmark = [needs_slurm, pytest.mark.timeout(600)]


def test_the_page(slurm: Cluster) -> None:
    page = (ROOT / "docs" / "operate" / "slurm.md").read_text()
    first = re.search(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert first is not None
    home = slurm.home("alice")
    for file in (ROOT / "examples").glob("*.py"):
        shutil.copy(file, home / ("train.py" if file.name == "train_gpt.py" else file.name))
    shown = slurm.run("alice", "bash", "-ec", first[1])
    number = re.search(r"Submitted batch job (\d+)", shown)
    assert number is not None and f"{number[1]} " in shown.splitlines()[-1]

    output = home / f"slurm-{number[1]}.out"

    def printed(words: str) -> bool:
        state = slurm.run("alice", "squeue", "--noheader", "--states=all", f"--jobs={number[1]}", "--format=%T").strip()
        text = output.read_text() if output.exists() else ""
        assert state in ("PENDING", "RUNNING") or words in text, f"{state}\n{text}"
        return words in text

    wait_until(lambda: printed(coverage.COVERED.code), "the first steps", LONG)
    slurm.nodes["n4"].off()
    wait_until(lambda: printed(recoveries.INCIDENT_OVER.code), "the recovery", LONG)
    query = ["squeue", "--noheader", f"--jobs={number[1]}", "--format=%k"]
    wait_until(lambda: "rank 3 of n4 on n5; lost n4; 1 incident" in slurm.run("alice", *query), "the comment", LONG)
    slurm.run("alice", "scancel", number[1])
