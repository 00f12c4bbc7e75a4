"""The command line's own manners: help, refusals, the latest run, and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.test_cli_run import ask


@pytest.mark.parametrize("command", [[], ["run"], ["status"], ["report"], ["migrate"], ["believe"], ["taint"], ["stop"], ["check-node"]])
def test_every_command_explains_itself(tmp_path: Path, command: list[str]) -> None:
    answer = ask(tmp_path, *command, "--help")
    assert answer.returncode == 0
    assert "Usage" in answer.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run", "--nnodes", "1:4", "script.py"], "fixed number of ranks"),
        (["run", "--no-python", "script.py"], "--no-python is refused"),
        (["run", "--virtual_local_rank", "script.py"], "--virtual-local-rank is refused"),
        (["run", "--nproc_per_node=0", "script.py"], "at least one"),
        (["run", "missing.py"], "no script missing.py"),
        (["run", "--nnodes", "2", "--node-rank", "0", "--master-addr", "host0", "script.py"], "--token-file"),
        (["run", "--nnodes", "2", "script.py"], "--node-rank"),
        (["run", "--tls-cert", "script.py", "--tls-key", "script.py", "script.py"], "--tls-cert"),
        (["run", "--tls-cert", "script.py", "script.py"], "needs --tls-key"),
        (["status"], "no run below"),
        (["status", "--run-dir", "."], "not the folder of a run"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_reason(tmp_path: Path, words: list[str], reason: str) -> None:
    (tmp_path / "script.py").write_text("")
    answer = ask(tmp_path, *words)
    assert answer.returncode == 2
    assert reason in " ".join(answer.stderr.split())
    assert not (tmp_path / "understudy-runs").exists(), "nothing was started"


def test_torchruns_environment_defaults(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    answer = ask(tmp_path, "run", "script.py", PET_NNODES="1:3")
    assert "--nnodes 1:3 is refused" in answer.stderr


def test_a_run_directory_is_used_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.json").write_text("{}")
    answer = ask(tmp_path, "run", "--run-dir", "run", "script.py")
    assert answer.returncode == 2
    assert "another run" in answer.stderr


def test_the_latest_run_is_found(tmp_path: Path) -> None:
    for started, name in enumerate(("understudy-runs/20260101-000000-2", "understudy-runs/20260101-000001-1", "elsewhere", "data"), 1):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        ours = {"job": name, "spec": {}, "program": [], "started": started}
        (folder / "job.json").write_text(json.dumps(ours if name != "data" else {"job": 7, "started": 99}))
        answer = ask(tmp_path, "status")
        assert answer.returncode == 1
        latest = name if name != "data" else "elsewhere"
        assert f"{latest} has no journal" in " ".join(answer.stderr.split())


def test_command_line_and_agent_do_not_import_torch() -> None:
    modules = "understudy.cli, understudy.agent.__main__, understudy.orchestrator.__main__"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
