"""A real control plane: jobs of users, and what happens to their nodes and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.integration.conftest import undisturbed_spread as undisturbed_spread
from tests.integration.processes import Mark, marked
from tests.integration.training import Outcome, survived
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.installation import install
from tests.kubernetes.jobs import KubernetesJob

pytestmark = [needs_kubernetes, pytest.mark.timeout(600)]
HELD = 6


@pytest.fixture(scope="session")
def installed(made_cluster: Cluster) -> Cluster:
    install(made_cluster)
    return made_cluster


@pytest.fixture
def kubernetes(installed: Cluster) -> Iterator[Cluster]:
    installed.begin()
    yield installed
    installed.end()


@pytest.fixture
def mark() -> Iterator[Mark]:
    with marked() as found:
        yield found


@pytest.fixture
def undisturbed(undisturbed_spread: Callable[[int], Outcome]) -> Outcome:
    return undisturbed_spread(4)


def test_a_job_that_nothing_happens_to(kubernetes: Cluster, undisturbed: Outcome) -> None:
    job = KubernetesJob(kubernetes)
    outcome = job.ends()
    assert not job.incidents()
    assert outcome.record == undisturbed.record
    job.nothing_is_left()
