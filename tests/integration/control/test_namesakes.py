"""A script's own modules come first, as under `python SCRIPT`, also where the worker has imported others of the same name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.processes import marked
from tests.integration.training import JOBS, LONG

OF_LIBRARY = ["queue", "select", "signal", "token", "code", "trace", "sched", "secrets", "statistics", "json"]
OF_INTERPRETER = ["os", "codecs", "encodings", "time"]  # modules that Python has imported before it runs a script


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_module_next_to_the_script_may_have_a_name_of_the_library(tmp_path: Path, fork: str) -> None:
    """On first ranks and on a newcomer, in a job that is started in the script's folder."""
    scripts, out = tmp_path / "scripts", tmp_path / "out"
    for folder in (scripts, scripts / OF_LIBRARY[-1], out):
        folder.mkdir()
    for name in (*OF_LIBRARY[:-1], *OF_INTERPRETER, f"{OF_LIBRARY[-1]}/__init__"):
        (scripts / f"{name}.py").write_text("OWN = True\n")
    shutil.copy(JOBS / "namesakes.py", scripts)
    names = [*OF_LIBRARY, *OF_INTERPRETER]
    command = [sys.executable, "namesakes.py", "alone", *names]
    alone = subprocess.run(command, cwd=scripts, capture_output=True, text=True, check=True).stdout.split()
    assert {"queue", "trace", "json"} <= set(alone) <= set(OF_LIBRARY)

    options = ["--nproc-per-node", "2", "--spares", "1", "--no-replenish", "--run-dir", str(out / "run")]
    command = [sys.executable, "-P", "-m", "understudy.cli", "run", *options, "namesakes.py", str(out), *names]
    with marked() as mark:
        environment = mark.environment(UNDERSTUDY_FORK=fork)
        job = subprocess.run(command, cwd=scripts, env=environment, capture_output=True, text=True, timeout=LONG, check=False)
    assert job.returncode == 0, job.stdout + job.stderr
    seen = [[line.split() for line in (out / f"own-{rank}.txt").read_text().splitlines()] for rank in (0, 1)]
    assert seen == [[alone], [alone, alone]]
