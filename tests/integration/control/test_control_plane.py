"""The benchmark of the control plane, at a tiny size: its report is complete, and every loss became one incident that is over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from understudy.orchestrator import views

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "control_plane.py"
ROWS = {"detect", "first command", "last command", "wave", "decision", "closed"}


def test_every_loss_is_measured_and_is_one_incident(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--agents", "4", "--ranks", "2", "--spare-nodes", "2", "--losses", "1", "--seconds", "4"]
    command += ["--keep", str(tmp_path / "runs"), "--json", str(tmp_path / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads((tmp_path / "report.json").read_text())["results"]
    assert result["agents"] == 4 and result["ranks"] == 8
    for name in ("assigned_seconds", "processor_share", "memory_mib", "replay_seconds", "back_seconds", "status_seconds", "events"):
        assert result[name] > 0, name
    losses = [*result["losses"], result["after_restart"]]
    assert result["rows"].keys() == ROWS and [loss["seconds"].keys() for loss in losses] == [ROWS, ROWS]
    for loss in losses:
        seconds = loss["seconds"]
        assert 0 <= seconds["first command"] <= seconds["last command"] <= seconds["closed"]
        assert seconds["decision"] > 0

    incidents = views.offline_report(tmp_path / "runs" / "4")["incidents"]
    assert len(incidents) == 2  # one for the loss, one for the loss after the restart
    for incident in incidents:
        assert incident["seconds"] is not None and incident["cause"] == "node" and incident["decision"] == "redo"
        assert len(incident["ranks"]) == 2 and incident["digests_verified"] == 200
        assert all(rank["new_worker"] for rank in incident["ranks"])
    assert "last command" in done.stdout  # the table


def test_a_machine_that_cannot_open_so_many_sockets_is_reported(tmp_path: Path) -> None:
    code = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); sys.path.insert(0, {str(SCRIPT.parent)!r})"
    )
    code += f"; sys.argv = ['control_plane.py', '--agents', '512']; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "512 agents need" not in done.stdout
    assert "516 agents need" in done.stderr and "ulimit -Hn" in done.stderr
