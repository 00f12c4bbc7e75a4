"""`make test` has ten minutes on two cores, one of which may be busy. Its cost is measured so and recorded, and the sum has a limit.

Nothing is timed here: the seconds are those of `tests/costs.json`, which `make costs` writes.
"""

from __future__ import annotations

import json

import pytest
from tests.tiers import HERE, REAL, folder, key

ROOT = HERE.parent
COSTS: dict[str, float] = json.loads((HERE / "costs.json").read_text())
# Seconds of tests, measured while another process keeps one of the two cores busy. Three run at once (TESTS_AT_ONCE), a fifth of their time
# is pytest's own, and a minute of the ten goes to lint, types and collecting.
LIMIT = 0.8 * 3 * (600.0 - 60.0)


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> set[str]:
    """The keys of all tests of this run, which has to be `make test`."""
    items = request.session.items
    found = {key(item.nodeid) for item in items}
    if not found >= {"benchmarks/peers", "tests/core", "tests/worker", "tests/matrix/test_covering.py"}:
        pytest.skip("only a run of the whole gate knows what is in it")
    if any(item.get_closest_marker("whole") or item.get_closest_marker("cluster") for item in items):
        pytest.skip("this run has more than the gate")
    return found


def test_the_gate_keeps_its_budget() -> None:
    spent = sum(COSTS.values())
    dearest = sorted(COSTS.items(), key=lambda entry: -entry[1])[:5]
    assert spent <= LIMIT, f"the gate costs {spent:.0f} s of {LIMIT:.0f} s: leave something to `make whole`. The dearest: {dearest}"


def test_every_job_of_the_gate_has_its_costs_recorded(gate: set[str]) -> None:
    unknown = {name for name in gate if _is_job(name)} - COSTS.keys()
    assert not unknown, f"run `make costs`, or write what a run alone took into tests/costs.json: {sorted(unknown)}"
    gone = {name for name in COSTS if _is_job(name)} - gate
    assert not gone, f"tests/costs.json has what is not in the gate any more: {sorted(gone)}"


def test_every_folder_of_the_gate_has_its_costs_recorded(gate: set[str]) -> None:
    assert {name for name in gate if not _is_job(name)} <= COSTS.keys()


def _is_job(name: str) -> bool:
    return folder(ROOT / name) in REAL
