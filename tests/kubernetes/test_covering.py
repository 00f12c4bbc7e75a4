"""The rows of the covering array on a real Kubernetes control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.jobs import GROUP, Steady
from tests.matrix import on_cluster
from tests.matrix.covering import KUBERNETES, Row

JOBS = on_cluster.jobs(KUBERNETES)
FIRST, *OTHERS = (pytest.param(rows, id=on_cluster.name(rows)) for rows in JOBS)

pytestmark = [needs_kubernetes, pytest.mark.timeout(900)]


class Serving(Steady):
    """A steady job whose pods share their armed faults. See `tests.matrix.on_cluster.ClusterJob`."""

    def shared(self) -> Path:
        return self.out

    def command(self, trains: list[str]) -> list[str]:
        """Put the folder into the run directory before the job begins, since a pod's files are its own."""
        (self.out / "chaos").mkdir()
        script = f'mkdir -p "$0" && ln -s {self.out / "chaos"} "$0" && exec understudy run --chaos --run-dir "$0" "$@"'
        return ["sh", "-c", script, "/tmp/run", *trains]

    def is_whole(self) -> bool:
        return self.status.get("phase") == "Training" and bool(self.status.get("spares"))

    def migrate(self, rank: int) -> None:
        self.cluster.patch("Pod", self._pod_with(rank), {"metadata": {"annotations": {f"{GROUP}/leave": "a row of the covering array"}}})

    def turn_off_node_of(self, rank: int) -> None:
        pod = self.cluster.get("Pod", self._pod_with(rank))
        self.cluster.nodes[pod["spec"]["nodeName"]].off()

    def _pod_with(self, rank: int) -> str:
        """Return the pod that has this rank, perhaps in addition to another one, once its label shows it."""

        def found() -> list[str]:
            labels = {pod: self.cluster.get("Pod", pod)["metadata"]["labels"].get(f"{GROUP}/rank", "") for pod in self.pod_names()}
            return [pod for pod, label in labels.items() if rank in ranks_in(label)]

        self.wait_until(lambda: len(found()) == 1, f"a label of rank {rank}")
        return found()[0]


def ranks_in(label: str) -> list[int]:
    """Return the ranks that a pod's label names: "2", "2-3" or "1_3"."""
    first, _, last = label.partition("-")
    return list(range(int(first), int(last) + 1)) if last else [int(rank) for rank in label.split("_") if rank]


@pytest.mark.cluster
@pytest.mark.parametrize("rows", [FIRST])
def test_most_rows(kubernetes: Cluster, rows: list[Row]) -> None:
    serve(kubernetes, rows)


@pytest.mark.parametrize("rows", OTHERS)
def test_the_other_rows(kubernetes: Cluster, rows: list[Row]) -> None:
    serve(kubernetes, rows)


def serve(kubernetes: Cluster, rows: list[Row]) -> None:
    """The job computes the same bits as undisturbed."""
    job = Serving(kubernetes, mode=rows[0].mode, spec={"timeouts": {"hang": on_cluster.HANG_LIMIT}})
    job.trains()
    on_cluster.serve(job, rows)
    incidents = job.ends_as_undisturbed()
    assert sum(len(incident["ranks"]) for incident in incidents) >= on_cluster.losses(rows)
    job.nothing_is_left()
