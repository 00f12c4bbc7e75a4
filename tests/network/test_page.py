"""The commands of docs/network/rails.md as printed, on two hosts; its files can be used as they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes import LIMIT, Mark, marked, send, wait_until
from tests.network.rail_hosts import MakeRails, RailHost, needs_rails, rails
from tests.pages import ROOT, blocks, commands

from understudy.detectors import rails as detector
from understudy.detectors.choice import choose
from understudy.network.configuration import Configuration, ProbeSettings

PAGE = ROOT / "docs" / "network" / "rails.md"
HERE = str(Path(__file__).relative_to(ROOT))
# Files of the system, which the test leaves alone.
OWN = {"understudy network rails ": "{0} --state state.json", "understudy network apply ": "{0} --record record.json"}
OWN |= {"understudy network undo": "{0} --record record.json", "understudy network status": "{0} --state state.json"}


def test_the_file_of_the_page_has_the_defaults() -> None:
    text, _ = blocks(PAGE, "toml")
    found = Configuration.model_validate(tomllib.loads(text))
    assert found.probes == ProbeSettings()
    assert tomllib.loads(text)["probes"].keys() == ProbeSettings.model_fields.keys()


def test_the_section_of_the_page_has_the_defaults() -> None:
    _, text = blocks(PAGE, "toml")
    (choice,) = (one for one in choose(text) if one.name == "network")
    made, usual = choice.make(), detector.Rails()
    assert isinstance(made, detector.Rails) and (made._state, made._after) == (usual._state, usual._after)


@pytest.fixture
def mark() -> Iterator[Mark]:
    with marked() as mark:
        yield mark


@pytest.fixture
def make(tmp_path: Path, mark: Mark) -> Iterator[MakeRails]:
    with rails(tmp_path, mark) as make:
        yield make


@pytest.mark.whole
@needs_rails
def test_the_commands_of_the_page(make: MakeRails, mark: Mark) -> None:
    pytest.importorskip("pyroute2", reason="needs pyroute2 (pip install 'understudy[network]')")
    made = make()
    before = [host.network() for host in made.hosts]
    (text, _), claimed = blocks(PAGE, "toml"), [block for block in commands(PAGE) if block.about == f"run by {HERE}"]
    setup, watch, undo = claimed
    plan, apply, agent = setup.lines
    environment = mark.environment(COLUMNS="200", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for host in made.hosts:
        (host.folder / "rails.toml").write_text(text)
        (host.folder / "token").write_text("a secret of this test")
        for line in (plan, apply):
            assert _typed(host, line, environment).returncode == 0
    started = [host.start(["sh", "-c", f"exec {_own(agent)}"], host.folder, environment, host.folder / "agent.txt") for host in made.hosts]
    host = made.hosts[0]
    wait_until(lambda: _answers(host.folder / "state.json"), "answers on both rails", 2 * LIMIT)
    human, plain = watch.lines
    for line in (human, plain):
        shown = _typed(host, line, environment)
        assert shown.returncode == 0 and "node1" in shown.stdout, shown.stdout + shown.stderr
    assert json.loads(shown.stdout)["host"] == "node0"
    for process in started:
        assert process.poll() is None
    for pid in (pid for host in made.hosts for pid in host.pids()):
        send(pid, signal.SIGTERM)
    assert [process.wait(LIMIT) for process in started] == [0, 0], (host.folder / "agent.txt").read_text()
    for host in made.hosts:
        (line,) = undo.lines
        assert _typed(host, line, environment).returncode == 0
    assert [host.network() for host in made.hosts] == before


def _own(line: str) -> str:
    line = f"{line} " if line.endswith(("undo", "status")) else line
    for begin, form in OWN.items():
        if line.startswith(begin):
            return form.format(line.strip())
    return line


def _typed(host: RailHost, line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = ["ip", "netns", "exec", host.namespace, "sh", "-euc", _own(line)]
    return subprocess.run(words, cwd=host.folder, env=environment, capture_output=True, text=True, timeout=2 * LIMIT)


def _answers(state: Path) -> bool:
    paths = json.loads(state.read_text())["paths"] if state.exists() else []
    return len(paths) == 2 and all(path["up"] and path["rtt"] is not None for path in paths)
