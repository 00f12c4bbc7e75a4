"""Which tests `make test` runs, what they may cost, and the summary at the end of a run.

Tests are in tiers by cost (CONTRIBUTING.md has the why):

a   what starts no job: the folders that mirror `src`, scenarios, the small rows of the model
b   real jobs of the gate: marked `gate`, or `cluster` where they need Slurm or Kubernetes
c   everything else, marked `whole`: by hand in the folders of tier a, and by this module in those of real jobs (`REAL`)

The budget: `tests/costs.json` has the seconds of every folder of tier a and of every file of tier b. `make costs` measures them, on two
cores of which another process keeps one busy; `tests/project/test_budget.py` holds their sum against the limit.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools import TOOLS

HERE = Path(__file__).parent
COSTS = HERE / "costs.json"
REAL = ("conformance", "contract", "drills", "faults", "integration", "kubernetes", "matrix", "slurm")  # folders of real jobs


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Leave tests of real jobs to `make whole`, unless they are marked for the gate; deal those that are left out to pytest's workers."""
    for item in items:
        if folder(item.path) in REAL and not any(item.get_closest_marker(name) for name in ("gate", "cluster")):
            item.add_marker(pytest.mark.whole)
    yield  # marks select
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = dealt(items, workers)


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in an order in which each worker begins with its share of the long ones.

    pytest-xdist gives every worker a piece of the list, all of the same length. Long tests at the end of one would keep the others waiting.
    """
    known: dict[str, float] = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    jobs = sorted((item for item in items if folder(item.path) in REAL), key=lambda item: (-known.get(key(item.nodeid), 0.0), item.nodeid))
    others = [item for item in items if folder(item.path) not in REAL]
    found: list[pytest.Item] = []
    size = -(-len(items) // workers)
    for number in range(workers):
        mine = jobs[number::workers]
        room = max(0, size - len(mine))
        found += [*mine, *others[:room]]
        others = others[room:]
    return [*found, *others]


def folder(path: Path) -> str:
    """Return the folder below `tests` in which a test is, or "" for another place."""
    return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else ""


def key(nodeid: str) -> str:
    """Return what the costs of a test are counted under: its file in tier b, its folder in tier a."""
    file = nodeid.partition("::")[0]
    return file if folder(HERE.parent / file) in REAL else str(Path(file).parent)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-costs", type=Path, metavar="FILE", help="write the seconds of every part of the gate to FILE, as JSON")


class Recorder:
    """Adds up the seconds of tests, and writes them at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[key(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._file.write_text(json.dumps({name: round(value, 1) for name, value in sorted(self._seconds.items())}, indent=1) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--write-costs")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(file))


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
