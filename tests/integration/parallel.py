"""A job of four ranks on two nodes of a service, parallel in one of the ways of the matrix, compared with torchrun step by step."""

from __future__ import annotations

import os
from typing import Any

from tests.faults.harness import JOB, ROOT
from tests.integration.processes import wait_until
from tests.integration.service import Service
from tests.integration.training import LONG
from tests.matrix.cells import RANKS, Cell
from tests.matrix.results import Result
from tests.matrix.run import Finished, compare, last_step, log_of, undisturbed

PACE = 0.05  # seconds of a step, so that there are not too many of them


class Parallel:
    """Train until a stop is requested. After every step each rank logs the loss and digests of its whole state and of what it has read:
    parameters, buffers, optimizer, schedule, random streams, data.
    """

    def __init__(self, service: Service, mode: str, spares: int, *flags: str) -> None:
        self.service, self.mode = service, mode
        self._folder, self._stop = service.folder / "out", service.folder / "stop"
        self._folder.mkdir()
        words = ["--nnodes", "2", "--nproc-per-node", "2", "--spares", str(spares), "--drill", "off", "--detach", "--rdzv-id", "job"]
        words += [*flags, str(JOB), "--out", str(self._folder), "--mode", mode, "--states"]
        words += ["--steps", str(1 << 40), "--pace", str(PACE), "--stop", str(self._stop)]
        path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        begun = service.command("run", *words, PYTHONPATH=path, OMP_NUM_THREADS="1")
        assert begun.returncode == 0, begun

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.service.get("status", job="job")
        return found

    def node_of(self, rank: int) -> str:
        return str(self.status()["ranks"][rank]["node"])

    def trains(self) -> None:
        """It has committed a step."""
        self._waits_for_step(0)

    def has_spares(self, count: int) -> None:
        """Warm ones."""
        wait_until(lambda: [spare["state"] for spare in self.status()["spares"]] == ["warm"] * count, "warm spares", LONG)

    def goes_on(self) -> None:
        """For some steps from now on."""
        self._waits_for_step(int(self.status()["step"]) + 2)

    def _waits_for_step(self, beyond: int) -> None:
        def there() -> bool:
            now = self.status()
            assert now["exit_code"] is None, now["message"]
            return int(now["step"]) > beyond

        wait_until(there, f"step {beyond}", LONG)

    def ends_as_undisturbed(self) -> list[dict[str, Any]]:
        """Gives its incidents."""
        self._stop.touch()
        wait_until(lambda: self.status()["exit_code"] is not None, "its end", LONG)
        ended = self.status()
        assert ended["exit_code"] == 0, ended["message"]
        logs = {rank: log_of(self._folder / f"log-{rank}.txt") for rank in range(RANKS)}
        result = Result(Cell(self.mode, "leaving", "leaving"))
        result.steps = (0, last_step(logs))
        reference = undisturbed(self.mode, result.steps[1])
        compare(Finished([result], logs, result.steps[1]), reference)
        assert not result.wrong, result.wrong
        incidents: list[dict[str, Any]] = self.service.get("report", job="job")["incidents"]
        return incidents

    def held_by(self, rank: int) -> int:
        """Return how many processes have had this rank."""
        return len({line["by"] for line in log_of(self._folder / f"log-{rank}.txt").values() if "by" in line})
