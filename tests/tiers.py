"""Which tests `make test` runs, what they may cost, and what is said at the end of a run.

Tests are in tiers by cost (CONTRIBUTING.md has the why):

a   what starts no job: the folders that mirror `src`, scenarios, the small rows of the model
b   real jobs of the gate: marked `gate`, or `cluster` where they need Slurm or Kubernetes
c   everything else, marked `whole`: by hand in the folders of tier a, and by this module in those of real jobs (`REAL`)

The budget: `tests/costs.json` has the seconds of every folder of tier a and of every test function of tier b. `make costs` measures
them, on a quiet machine with two cores; `tests/project/test_budget.py` holds their sum against the limit.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.tools import TOOLS

HERE = Path(__file__).parent
REAL = ("conformance", "contract", "drills", "faults", "integration", "kubernetes", "matrix", "slurm")  # folders of real jobs


@pytest.hookimpl(tryfirst=True)  # before marks select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests of real jobs to `make whole`, unless they are marked for the gate."""
    for item in items:
        if folder(item.path) in REAL and not any(item.get_closest_marker(name) for name in ("gate", "cluster")):
            item.add_marker(pytest.mark.whole)


def folder(path: Path) -> str:
    """Return the folder below `tests` in which a test is, or "" for another place."""
    return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else ""


def key(nodeid: str) -> str:
    """Return what the costs of a test are counted under: its function in tier b, its folder in tier a."""
    file, _, name = nodeid.partition("::")
    inside = folder(HERE.parent / file)
    return f"{file}::{name.partition('[')[0]}" if inside in REAL else str(Path(file).parent)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-costs", type=Path, metavar="FILE", help="write the seconds of every part of the gate to FILE, as JSON")


class Costs:
    """Adds up the seconds of tests, and writes them at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[key(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == 0:
            self._file.write_text(json.dumps({name: round(value, 1) for name, value in sorted(self._seconds.items())}, indent=1) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--write-costs")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs(file))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which tests were left out because a tool is missing, and how to get it."""
    if hasattr(config, "workerinput"):
        return
    everything = config.args_source is not pytest.Config.ArgsSource.ARGS
    lacking = [
        tool for tool in TOOLS if not tool.there() and (everything or any(place in word for word in config.args for place in tool.places))
    ]
    if lacking:
        terminalreporter.section("left out, because a tool is missing")
        for tool in lacking:
            terminalreporter.write_line(f"{tool.name}: {tool.used_for} ({', '.join(tool.places)}). To get it: {tool.remedy}")
