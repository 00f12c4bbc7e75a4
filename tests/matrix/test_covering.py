"""The rows of the covering array that this machine can run with this torch, and what the array promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.processes import marked
from tests.matrix import covering
from tests.matrix.__main__ import everything
from tests.matrix.cells import PARALLEL, PHASES, cell, cells
from tests.matrix.covering import FACTORS, LOCAL, NEW, REJOINED, possible
from understudy.chaos.registry import registry
from understudy.worker.transport.backends import rejoining

GROUPS = REJOINED if rejoining.available() else NEW


@pytest.mark.gate
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", PARALLEL)
def test_rows_on_this_machine(mode: str, tmp_path: Path) -> None:
    """Every rank's whole state after every step is bitwise that of the undisturbed run."""
    wanted = [cell(mode, row.phase, row.fault, number) for number, row in enumerate(covering.of(LOCAL, GROUPS)) if row.mode == mode]
    with marked() as mark:
        results = everything(wanted, tmp_path, mark, at_once=1)
    assert not [f"{result.cell.name}: {result.wrong}" for result in results if result.wrong]
    skipped = {result.cell.why_not for result in results if result.cell.why_not}
    assert all("commands" in why for why in skipped), skipped  # tools that lack; the end of the run reports it


def test_every_possible_pair_of_values_occurs() -> None:
    shown = set().union(*(covering.pairs(row) for row in covering.rows()))
    assert shown == covering.wanted()


def test_every_value_occurs_in_every_kind_of_run_that_can_have_it() -> None:
    assert {row.phase for row in covering.of(LOCAL)} == {row.phase for row in covering.of(LOCAL, REJOINED)} == set(PHASES)
    for row in covering.rows():
        assert possible({name: getattr(row, name) for name in FACTORS})
        assert row.fault == covering.NODE_LOST or registry().find(row.fault)
    assert {row.fault for row in covering.rows()} == {name for names in covering.KINDS.values() for name in names} | {covering.PAUSE}


def test_the_matrix_has_every_fault_in_every_phase_once_or_the_reason_why_not() -> None:
    for mode in PARALLEL:
        found = cells(mode)
        assert {(one.phase, one.fault) for one in found} == {(phase, fault.name) for phase in PHASES for fault in registry().all()}
        assert len(found) == len(PHASES) * len(registry().all())
        assert all(bool(one.entries) != bool(one.why_not) for one in found)
