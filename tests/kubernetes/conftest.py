"""Shared by the tests on a Kubernetes cluster: the cluster, and a separate namespace in it for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.integration.conftest import undisturbed_spread as undisturbed_spread
from tests.integration.training import Outcome
from tests.kubernetes.cluster import Cluster, cluster
from tests.kubernetes.control_plane import why_no_resources
from tests.kubernetes.installation import install


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


@pytest.fixture(scope="session")
def installable() -> None:
    if why := why_no_resources():
        pytest.skip(why)


@pytest.fixture(scope="session")
def installed(installable: None, made_cluster: Cluster) -> Cluster:
    install(made_cluster)
    return made_cluster


@pytest.fixture
def kubernetes(installed: Cluster) -> Iterator[Cluster]:
    """The same, with Understudy on it."""
    installed.begin()
    yield installed
    installed.end()


@pytest.fixture
def undisturbed(undisturbed_spread: Callable[[int], Outcome]) -> Outcome:
    return undisturbed_spread(4)
