"""A node with two ranks is drained in every way to be parallel: behind every step every rank holds what it holds undisturbed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.faults.harness import JOB, ROOT
from tests.integration.processes import marked, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG
from tests.matrix.cells import PARALLEL, RANKS, Cell
from tests.matrix.results import Result
from tests.matrix.run import Finished, compare, last_step, log_of, undisturbed

PACE = 0.05  # seconds of a step, so that there are not too many of them


@pytest.mark.parametrize("mode", [mode if mode == "hsdp" else pytest.param(mode, marks=pytest.mark.whole) for mode in PARALLEL])
def test_ranks_leave_a_node_one_after_the_other(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with marked() as mark:
        service = Service(tmp_path, mark)
        for name in "abc":
            service.start_agent(name, 2)
        service.wait_for_nodes(3)
        folder, stop = tmp_path / "out", tmp_path / "stop"
        folder.mkdir()
        script = [
            str(JOB),
            "--out",
            str(folder),
            "--mode",
            mode,
            "--states",
            "--steps",
            str(1 << 40),
            "--pace",
            str(PACE),
            "--stop",
            str(stop),
        ]
        flags = ["--nnodes", "2", "--nproc-per-node", "2", "--spares", "2", "--drill", "off", "--detach", "--rdzv-id", "job"]
        assert service.command("run", *flags, *script).returncode == 0

        def status() -> dict[str, object]:
            found: dict[str, object] = service.ask("status", "--job", "job")
            return found

        def steps(beyond: int) -> None:
            def there() -> bool:
                now = status()
                assert now["exit_code"] is None, now["message"]
                return int(str(now["step"])) > beyond

            wait_until(there, f"step {beyond}", LONG)

        steps(0)
        node = service.ask("status", "--job", "job")["ranks"][2]["node"]
        drained = service.command("drain", node, "--wait", "--deadline", "10m", "--json")
        assert drained.returncode == 0, drained
        assert json.loads(drained.stdout)["stage"] == "drained"
        steps(int(str(status()["step"])) + 2)
        stop.touch()
        assert service.command("logs", "--follow", "job").returncode == 0
        assert [rank["node"] == node for rank in service.ask("status", "--job", "job")["ranks"]] == [False] * RANKS
        incidents = service.ask("report", "--job", "job")["incidents"]
        assert [(incident["cause"], incident["rank"]) for incident in incidents] == [("migrated", 2), ("migrated", 3)]
        logs = {rank: log_of(folder / f"log-{rank}.txt") for rank in range(RANKS)}
        result = Result(Cell(mode, "drain", "drain"))
        result.steps = (0, last_step(logs))
        compare(Finished([result], logs, result.steps[1]), undisturbed(mode, result.steps[1], tmp_path / "undisturbed", mark))
        assert not result.wrong, result.wrong
