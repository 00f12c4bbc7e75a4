"""Two versions of Understudy in one service: additional fields of a later one are ignored, and missing fields of an earlier one have a
default.

The later version is this one, changed as a later one may be: a message, a command and a page with one more field each, and an
event that this version does not know.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.processes import marked, pid_of, send, wait_for_end, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG, Outcome, survived

import understudy
from understudy.messages import agents

HELD = 6
LAST_OF_COMMITTED = r"    copied: float = 0\.0[^\n]*\n(?=\n\n@dataclass\(frozen=True\)\nclass ScriptFailed)"
LOST_NODE = "@dataclass(frozen=True)\nclass LostNode:"
HANDLED = "    events.NodesLost: loss.nodes_lost,\n"
SAY = """        self._replay.remember(event)
            from understudy.core.events import Weather
            self._connection.sendall(encode(Weather(self.worker, 20)).encode() + b'\\n')
"""
CHANGES = {  # file -> patterns, each of which is there once, and what takes its place
    "__init__.py": [(re.escape(f'__version__ = "{understudy.__version__}"'), '__version__ = "99"')],
    "core/events.py": [
        (LAST_OF_COMMITTED, r"\g<0>    weather: str = 'fair'\n"),
        (re.escape(LOST_NODE), f"@dataclass(frozen=True)\nclass Weather:\n    worker: str\n    degrees: int\n\n\n{LOST_NODE}"),
        (r"FromWorker = \(\n    WorkerWarm\n", "FromWorker = (\n    Weather\n    | WorkerWarm\n"),
    ],
    "core/machine.py": [(re.escape(HANDLED), f"{HANDLED}    events.Weather: lambda *_: None,\n")],
    "core/commands.py": [(r"    leavers: tuple\[int, \.\.\.\]  #", "    hint: str = 'none'\n    leavers: tuple[int, ...] = ()  #")],
    "common/page_view.py": [(r'    where: Place = ""[^\n]*\n', r"\g<0>    heat: float = 36.6\n")],
    "worker/process/control.py": [(r"        self\._replay\.remember\(event\)\n", SAY.replace("\\", r"\\"))],
}


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a package `understudy` that was changed."""
    folder = tmp_path_factory.mktemp("later")
    package = folder / "understudy"
    shutil.copytree(Path(understudy.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, pairs in CHANGES.items():
        text = (package / name).read_text()
        for old, new in pairs:
            text, count = re.subn(old, new, text)
            assert count == 1, f"{old!r} in {name}"
        (package / name).write_text(text)
    return folder


@pytest.mark.parametrize("first", ["orchestrator", "agents"])
def test_an_upgrade_under_a_running_job(tmp_path: Path, later: Path, undisturbed_spread: Callable[[int], Outcome], first: str) -> None:
    """One side is of the later version, a rank is lost; then a spare of the other version takes a rank, and the rest is upgraded."""
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.source = later if first == "agents" else None
        service.start_nodes("ab", 2)
        job = service.run("job", ["--nnodes", "2", "--spares", "2"], "spread.py", HELD=f"1:{HELD}", WAIT="1")
        job.wait_for(f"held {HELD}")
        if first == "orchestrator":
            service.source = later
            service.kill_orchestrator()
            service.start_orchestrator()
        wait_until(lambda: job.status()["ranks"][1]["step"] == HELD, "pages of the other version are read", LONG)
        pid = pid_of(lambda: job.status()["ranks"][1])
        send(pid, signal.SIGKILL)
        wait_for_end(pid)
        job.wait_for(f"step {HELD + 1} on 1 in generation 1")
        service.source = later
        if first == "agents":
            service.kill_orchestrator()
            service.start_orchestrator()
        else:
            for name in "ab":
                service.restart_agent(name)
                service.wait_for_words(f"agent-{name}.txt", agents.PART_TAKEN_UP(job="job"))
        job.let("end")
        (incident,) = survived(job.ends(), undisturbed_spread(2))
        assert (incident["rank"], incident["cause"]) == (1, "killed")
