"""The code of docs/internals/extending.md, as printed there, installed as packages of others."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import packages
from tests.contract.backend import Kind as BackendKind
from tests.contract.backend import broken_promises
from tests.message_texts import refused
from tests.orchestrator.test_detection import VIEW, collect
from torch import nn

from understudy import extensions
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.messages import schedulers
from understudy.orchestrator.detection import OtherDetectors
from understudy.schedulers.base import Work
from understudy.schedulers.registry import find
from understudy.worker.devices.device_errors import DeviceError, Kind, judge
from understudy.worker.frameworks.aggregate import Frameworks, Shards
from understudy.worker.frameworks.base import SharedObject, disagreement
from understudy.worker.state.registry import State

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "extending.md"
PARTS = re.findall(r"^## An? ([\w ]+)$.*?^```toml\n(.*?)^```$.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
EXAMPLES = {title: (toml, code) for title, toml, code in PARTS}
LONGEST = 40  # lines


@pytest.fixture
def installed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of the example that the test names."""
    toml, code = EXAMPLES[request.param]
    ((group, entries),) = tomllib.loads(toml)["project"]["entry-points"].items()
    ((_, target),) = entries.items()
    name = code.splitlines()[0].removeprefix("# ").removesuffix(".py")
    packages.install(tmp_path, name, group, target, code)
    monkeypatch.syspath_prepend(str(tmp_path))
    extensions.entries.cache_clear()
    yield tmp_path
    extensions.entries.cache_clear()
    sys.modules.pop(name, None)


def test_every_part_of_the_page_has_an_example_of_less_than_forty_lines() -> None:
    titles = re.findall(r"^## An? ([\w ]+)$", PAGE.read_text(), re.MULTILINE)
    assert titles == list(EXAMPLES)
    assert titles == ["detector", "framework", "backend", "scheduler", "device error"]
    assert all(len(code.splitlines()) < LONGEST for _, code in EXAMPLES.values())


@pytest.mark.parametrize("installed", ["detector"], indirect=True)
def test_the_detector(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = installed / "flags"
    flags.mkdir()
    (flags / "n0").write_text("the fan is loud\n")
    os.utime(flags / "n0", (50, 50))
    monkeypatch.setenv("FLAGS", str(flags))
    found = collect(OtherDetectors(pytest.fail), bool)
    detail = "flag: the fan is loud"
    assert found[0] == Evidence("flag", Subject.NODE, "n0", Severity.SUSPECT, detail, 50.0)
    assert set(VIEW.nodes.values()) == {"n0"}


@pytest.mark.parametrize("installed", ["framework"], indirect=True)
def test_the_framework(installed: Path) -> None:
    """It is asked after ours: its state is compared, restored by a redo, and passed to a newcomer."""
    state = State(Shards())
    groups: Any = SimpleNamespace(members=lambda: [(None, "0", [0, 1])])
    mine, theirs = Frameworks(state, groups), Frameworks(state, groups)
    assert mine.uncovered() == "dice without a module"
    state.register("model", nn.Linear(2, 2))
    assert mine.uncovered() == ""
    assert mine.described() == {"dice": SharedObject((0, 1), "pair of dice", {"sides": 6})}
    mine.begin()
    dice: Any = mine._adapters[-1]
    dice.sides = 12
    assert "sides is 12 on rank 0, is 6 on rank 1" in disagreement({0: mine.described(), 1: theirs.described()})
    theirs.adopt({0: mine.described()})
    assert disagreement({0: mine.described(), 1: theirs.described()}) == ""
    mine.restore()
    assert dice.sides == 6


@pytest.mark.parametrize("installed", ["backend"], indirect=True)
def test_the_backend(installed: Path) -> None:
    """What every backend promises, on three real processes."""
    assert broken_promises(BackendKind("twin", shows=False), path=str(installed)) == []


@pytest.mark.parametrize("installed", ["scheduler"], indirect=True)
def test_the_scheduler(installed: Path) -> None:
    scheduler = find("nice")
    priority = installed / "priority"
    code = f"import os; from pathlib import Path; Path({str(priority)!r}).write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))"
    running = scheduler.add_node(Work("n0", (sys.executable, "-c", code)))
    assert running.wait(60.0)
    assert (scheduler.status(), priority.read_text()) == ({"n0": "exit code 0"}, str(min(os.getpriority(os.PRIO_PROCESS, 0) + 7, 19)))
    running.close()
    with refused(ValueError, schedulers.NO_SUCH_SCHEDULER, scheduler="slate", known="local, slurm, jobset, kubernetes, nice"):
        find("slate")


@pytest.mark.parametrize("installed", ["device error"], indirect=True)
def test_the_device_error(installed: Path) -> None:
    assert judge(RuntimeError("nrt_execute failed: NRT_EXEC_HW_ERR_NC_UE")) == DeviceError(Kind.DEVICE_LOST, "NRT_EXEC_HW_ERR")
    assert judge(RuntimeError("another")) is None
