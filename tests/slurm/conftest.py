"""Shared by the tests on a Slurm cluster: the cluster, on again and idle before each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.integration.conftest import undisturbed_spread as undisturbed_spread
from tests.integration.training import Outcome
from tests.model.validate import validate
from tests.slurm.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm") / "c") as there:
        yield there


@pytest.fixture
def slurm(made: Cluster) -> Iterator[Cluster]:
    """Yield the cluster. Afterwards no job is left, and the history of every real job is compared with the model of the protocol."""
    made.begin()
    yield made
    made.end()
    for user in ("alice", "bob"):
        validate(made.home(user), killed=True)


@pytest.fixture
def undisturbed(undisturbed_spread: Callable[[int], Outcome]) -> Outcome:
    return undisturbed_spread(4)
