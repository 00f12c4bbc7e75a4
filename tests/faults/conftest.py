"""Jobs that are ended in any case, and the undisturbed runs that all others are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.harness import Fault, Job, Reference, undisturbed
from tests.integration.processes import marked
from tests.model.validate import validate


@pytest.fixture(autouse=True)
def allowed_by_the_model(tmp_path: Path) -> Iterator[None]:
    """Compare the history of every job here with the model of the protocol."""
    yield
    validate(tmp_path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """`start(mode, *faults, spares=..., flags=..., arguments=...)`: starts a job."""
    with marked() as mark:
        jobs: list[Job] = []

        def begin(mode: str, *faults: Fault, **more: object) -> Job:
            jobs.append(Job(tmp_path / f"job-{len(jobs)}", mark, mode, faults, **more))  # type: ignore[arg-type]
            return jobs[-1]

        yield begin
        for job in jobs:
            job.end()


@pytest.fixture(scope="session")
def reference() -> Callable[..., Reference]:
    """`reference(mode, *arguments)`: the run under torchrun."""
    return lambda mode, *arguments: Reference.of(undisturbed(mode, *arguments))
