"""The diagonal of the matrix: every phase once, each with another fault, in one way to be parallel after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.processes import marked
from tests.matrix.__main__ import everything
from tests.matrix.cells import PARALLEL, PHASES, cells, diagonal
from understudy.chaos.registry import registry

DIAGONAL = diagonal(list(PARALLEL))


@pytest.mark.parametrize("mode", PARALLEL)
def test_diagonal(mode: str, tmp_path: Path) -> None:
    wanted = [cell for cell in DIAGONAL if cell.mode == mode]
    with marked() as mark:
        results = everything(wanted, tmp_path, mark, at_once=1)
    assert not [f"{result.cell.name}: {result.wrong}" for result in results if result.wrong]


def test_the_matrix_has_every_fault_in_every_phase_once_or_the_reason_why_not() -> None:
    assert [cell.phase for cell in DIAGONAL] == list(PHASES) and not any(cell.why_not for cell in DIAGONAL)
    for mode in PARALLEL:
        found = cells(mode)
        assert {(cell.phase, cell.fault) for cell in found} == {(phase, fault.name) for phase in PHASES for fault in registry().all()}
        assert len(found) == len(PHASES) * len(registry().all())
        assert all(bool(cell.entries) != bool(cell.why_not) for cell in found)
