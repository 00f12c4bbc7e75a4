"""Faults in the middle of a drill: the drill may have no result, training is not affected. `make drills` runs the whole grid."""

from __future__ import annotations

from pathlib import Path

from tests.drills.cells import FAULTS, PHASES, cells, diagonal
from tests.drills.faults import FaultsInDrills
from tests.integration.processes import marked
from tests.integration.training import Training

from understudy.chaos.points import POINTS


def test_a_fault_in_each_phase_of_a_drill_and_each_victim_once(tmp_path: Path) -> None:
    with marked() as mark:
        results = FaultsInDrills(Training(tmp_path, mark), mark).run(diagonal())
    assert not [f"{result.cell.name}: {result.wrong}" for result in results if result.wrong]


def test_the_grid_is_whole() -> None:
    assert {(cell.what, cell.victim) for cell in diagonal()} == set(FAULTS) and {cell.phase for cell in diagonal()} == PHASES.keys()
    assert len(cells()) == len(PHASES) * len(FAULTS) and set(PHASES.values()) <= POINTS.keys()
