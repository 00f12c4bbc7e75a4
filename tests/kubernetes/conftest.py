"""What the tests on a Kubernetes cluster share: the cluster, and a namespace of its own in it for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def made_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("kubernetes") / "c") as there:
        yield there


@pytest.fixture
def kubernetes_cluster(made_cluster: Cluster) -> Iterator[Cluster]:
    """Afterwards nothing of the test is there, and every node is on, whole and ready."""
    made_cluster.begin()
    yield made_cluster
    made_cluster.end()
