"""What the tests on several hosts share: the same training undisturbed, which each compares with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.processes import marked
from tests.integration.training import Outcome, Training


@pytest.fixture(scope="session")
def undisturbed_spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Outcome]]:
    """`spread.py` under torchrun, for a number of ranks."""
    known: dict[int, Outcome] = {}

    def of(ranks: int) -> Outcome:
        if ranks not in known:
            known[ranks] = Training(tmp_path_factory.mktemp("undisturbed"), mark).torchrun("spread.py", ranks=ranks)
        return known[ranks]

    with marked() as mark:
        yield of
