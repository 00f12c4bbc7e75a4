"""Shared by the tests on several hosts: the same training undisturbed, with which each of them compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.training import Outcome, Training
from tests.model.validate import validate

# Workers in these send arbitrary messages, or the test sends some in their name.
FAKED = {"test_versions", "test_orchestrator", "test_cli_run", "test_api", "test_upgrade", "test_control_plane", "test_tampering"}

# These kill orchestrators in the middle of incidents.
KILLS = {
    "test_chaos",
    "test_hosts_leader",
    "test_service",
    "test_several_orchestrators",
    "test_cli_leftovers",
    "test_events",
    "test_disk_full",
}


@pytest.fixture(autouse=True)
def allowed_by_the_model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Compare the history of every real job here with the model of the protocol."""
    yield
    module = request.module.__name__.rpartition(".")[2]
    if module not in FAKED:
        validate(tmp_path, killed=module in KILLS)


@pytest.fixture(scope="session")
def undisturbed_spread() -> Callable[[int], Outcome]:
    """`spread.py` under torchrun, for a number of ranks."""
    return lambda ranks: Training.undisturbed("spread.py", ranks=ranks)
