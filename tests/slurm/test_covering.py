"""The rows of the covering array on real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix import on_cluster
from tests.matrix.covering import SLURM, Row
from tests.slurm.cluster import Cluster, needs_slurm
from tests.slurm.submitted import Steady

JOBS = on_cluster.jobs(SLURM)
FIRST, *OTHERS = (pytest.param(rows, id=on_cluster.name(rows)) for rows in JOBS)

pytestmark = [needs_slurm, pytest.mark.timeout(900)]


class Serving(Steady):
    """A steady job whose nodes share their armed faults. See `tests.matrix.on_cluster.ClusterJob`."""

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def shared(self) -> Path:
        folder = self.folder / "shared"
        self.cluster.run(self.user, "mkdir", "-p", str(folder / "chaos"))
        for run in (self.folder / "understudy-runs").iterdir():
            (run / "chaos").symlink_to(folder / "chaos")
        return folder

    def is_whole(self) -> bool:
        status = self.ask("status", self._asked)
        return status["state"] == "training" and bool(status["spares"])

    @property
    def _asked(self) -> str:
        """A node of those with an orchestrator that is on."""
        return next(node for node in ("n1", "n2", "n3") if self.cluster.nodes[node].is_on)

    def migrate(self, rank: int) -> None:
        words = ["understudy", "migrate", "--rank", str(rank), "--run-dir", str(self.run_directory(self._asked))]
        self.cluster.run(self.user, *words)

    def turn_off_node_of(self, rank: int) -> None:
        self.cluster.nodes[self.node_of(rank, self._asked)].off()


@pytest.mark.cluster
@pytest.mark.parametrize("rows", [FIRST])
def test_most_rows(slurm: Cluster, rows: list[Row]) -> None:
    serve(slurm, rows)


@pytest.mark.parametrize("rows", OTHERS)
def test_the_other_rows(slurm: Cluster, rows: list[Row]) -> None:
    serve(slurm, rows)


def serve(slurm: Cluster, rows: list[Row]) -> None:
    """The job computes the same bits as undisturbed."""
    job = Serving(slurm, "--chaos", "--hang-limit", str(on_cluster.HANG_LIMIT), mode=rows[0].mode)
    job.trains()
    on_cluster.serve(job, rows)
    incidents = job.ends_as_undisturbed(job._asked, "CANCELLED" if not slurm.nodes["n1"].is_on else "COMPLETED")
    assert sum(len(incident["ranks"]) for incident in incidents) >= on_cluster.losses(rows)
    job.nothing_is_left()
