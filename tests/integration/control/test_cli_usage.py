"""The command line's own manners: help, refusals, the latest run, and no torch. In this process, but for one command of each kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.control.test_cli_run import ask
from tests.message_texts import has
from typer.testing import CliRunner, Result

from understudy.cli import app
from understudy.common.names import TOKEN_VARIABLE
from understudy.messages import asking, run_options, starting
from understudy.messages.base import Message


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a script, and in no job of a scheduler's."""
    for name in [name for name in os.environ if name.startswith("SLURM_") or name == TOKEN_VARIABLE]:
        monkeypatch.delenv(name)
    (tmp_path / "script.py").write_text("")
    monkeypatch.chdir(tmp_path)


def command(*words: str, **variables: str) -> Result:
    return CliRunner().invoke(app, list(words), env=variables)


@pytest.mark.parametrize("word", ["", "run", "status", "report", "migrate", "resolve", "believe", "taint", "stop", "check-node"])
def test_every_command_explains_itself(word: str) -> None:
    answer = command(*word.split(), "--help")
    assert answer.exit_code == 0
    assert "Usage" in answer.stdout


@pytest.mark.parametrize(
    ("words", "message", "arguments"),
    [
        (["run", "--nnodes", "1:4", "script.py"], run_options.NODES_RANGE, {"nnodes": "1:4"}),
        (["run", "--no-python", "script.py"], run_options.NO_PYTHON_REFUSED, {}),
        (["run", "--virtual_local_rank", "script.py"], run_options.VIRTUAL_LOCAL_RANK_REFUSED, {}),
        (["run", "--nproc_per_node=0", "script.py"], run_options.NO_WORKERS, {"value": "0"}),
        (["run", "missing.py"], run_options.SCRIPT_MISSING, {"script": "missing.py"}),
        (["run", "--nnodes", "2", "--node-rank", "0", "--master-addr", "host0", "script.py"], starting.SECRET_NEEDED, {}),
        (["run", "--token-file", "none", "script.py"], starting.TOKEN_FILE_UNREADABLE, {"path": "none"}),
        (["run", "--token-file", "script.py", "script.py"], starting.TOKEN_FILE_EMPTY, {"path": "script.py"}),
        (["run", "--nnodes", "2", "script.py"], run_options.NODE_RANK_NEEDED, {"last": 1}),
        (["run", "--tls-cert", "script.py", "--tls-key", "script.py", "script.py"], starting.TLS_UNUSABLE, {}),
        (["run", "--tls-cert", "script.py", "script.py"], starting.CERTIFICATE_WITHOUT_KEY, {"node_rank": 0}),
        (["run", "--tls-key", "script.py", "script.py"], starting.KEY_WITHOUT_CERTIFICATE, {}),
        (["run", "--tls-cert", "none", "script.py"], starting.TLS_FILE_MISSING, {"option": "--tls-cert", "path": "none"}),
        (["run", "--tls", ".", "script.py"], starting.TLS_FOLDER_INCOMPLETE, {"path": ".", "node_rank": 0}),
        (["run", "--tls", ".", "--tls-key", "script.py", "script.py"], starting.TLS_FOLDER_AND_KEY, {"path": "."}),
        (["run", "--floating-spares", "1", "script.py"], starting.FLOATING_WITHOUT_SCHEDULER, {}),
        (["run", "--orchestrator", "host0", "script.py"], asking.URL_FORM, {"url": "host0"}),
        (["status"], asking.NO_RUN, {}),
        (["status", "--run-dir", "."], asking.NOT_A_RUN, {"path": ".", "file": "job.json"}),
        (["status", "--job", "mine"], asking.JOB_WITHOUT_ORCHESTRATOR, {}),
        (["jobs"], asking.ORCHESTRATOR_NEEDED, {}),
        (["jobs", "--orchestrator", "http://host0", "--token-file", "none"], asking.FILE_UNREADABLE, {"path": "none"}),
        (["jobs", "--orchestrator", "http://host0", "--tls", "script.py"], asking.TRUST_UNUSABLE, {"path": "script.py"}),
        (["drain", "n0", "--deadline", "400d"], asking.DEADLINE_RANGE, {"value": "400d"}),
        (["drain", "n0", "--deadline", "soon"], asking.DEADLINE_FORM, {"value": "soon"}),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_reason(
    tmp_path: Path, words: list[str], message: Message, arguments: dict[str, object]
) -> None:
    answer = command(*words)
    assert answer.exit_code == 2, answer.output
    assert has(answer.stderr, message, **arguments), answer.stderr
    assert not (tmp_path / "understudy-runs").exists(), "nothing was started"


def test_the_process_ends_with_its_code(tmp_path: Path) -> None:
    answer = ask(tmp_path, "run", "--nnodes", "1:4", "script.py")
    assert answer.returncode == 2 and has(answer.stderr, run_options.NODES_RANGE, nnodes="1:4")


def test_torchruns_environment_defaults() -> None:
    assert has(command("run", "script.py", PET_NNODES="1:3").stderr, run_options.NODES_RANGE, nnodes="1:3")


def test_a_run_directory_is_used_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.json").write_text("{}")
    answer = command("run", "--run-dir", "run", "script.py")
    assert answer.exit_code == 2
    assert has(answer.stderr, asking.RUN_DIRECTORY_TAKEN, path=tmp_path / "run")


def test_the_latest_run_is_found(tmp_path: Path) -> None:
    for started, name in enumerate(("understudy-runs/20260101-000000-2", "understudy-runs/20260101-000001-1", "elsewhere", "data"), 1):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        ours = {"job": name, "spec": {}, "program": [], "started": started}
        (folder / "job.json").write_text(json.dumps(ours if name != "data" else {"job": 7, "started": 99}))
        answer = command("status")
        assert answer.exit_code == 1
        latest = name if name != "data" else "elsewhere"
        assert has(answer.stderr, asking.NO_JOURNAL, path=tmp_path / latest)


def test_command_line_and_agent_do_not_import_torch() -> None:
    modules = "understudy.cli, understudy.agent.__main__, understudy.orchestrator.__main__"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
