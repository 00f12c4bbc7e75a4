"""The versions that Understudy is tested with: in pyproject.toml as in the code, and a warning when another torch is installed."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import understudy.cli
from understudy.common import tested
from understudy.messages import tools

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LAST = tested.minor(tested.TORCH[1])


def test_pyproject_has_the_range_of_torch() -> None:
    bound = f"torch>={tested.TORCH[0]},<{LAST[0]}.{LAST[1] + 1}"
    assert [one for one in PROJECT["dependencies"] if re.match(r"torch\b", one)] == [bound]


def test_pyproject_has_the_range_of_python() -> None:
    named = [match[1] for one in PROJECT["classifiers"] if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one))]
    (first, last) = (tested.minor(one)[1] for one in tested.PYTHON)
    assert named == [f"3.{number}" for number in range(first, last + 1)]
    assert PROJECT["requires-python"] == f">={tested.PYTHON[0]}"


def test_the_makefile_and_the_documentation_name_the_range() -> None:
    (line,) = re.findall(r'"  make setup .*"', (ROOT / "Makefile").read_text())
    for first, last in (tested.TORCH, tested.PYTHON):
        assert f"{first} to {last}" in line
    assert f"{tested.TORCH[0]} to {tested.TORCH[1]}" in (ROOT / "docs" / "operate" / "index.md").read_text()


@pytest.mark.parametrize(
    ("version", "inside"),
    [
        ("2.12.1", False),
        ("2.13.0", True),
        ("2.13.0a0+git12", True),
        ("2.14.9+cu130", True),
        ("2.15.0", False),
        ("2.100.0", False),
        ("3.13.0", False),
        ("", False),
    ],
)
def test_what_is_in_the_range(version: str, inside: bool) -> None:
    assert tested.is_tested(version, ("2.13", "2.14")) is inside


def _installed(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    real = metadata.version

    def asked(name: str) -> str:
        if name != "torch":
            return real(name)
        if not version:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", asked)


@pytest.mark.parametrize("version", ["", f"{tested.TORCH[0]}.0+cpu", f"{tested.TORCH[1]}.7"])
def test_a_tested_torch_is_not_reported(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    _installed(monkeypatch, version)
    assert tested.installed_torch() == version
    assert tested.untested_torch() == ""


def _run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *flags: str) -> list[str]:
    """Run `understudy run` up to where it would start a job; return its output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").touch()
    monkeypatch.setattr("understudy.cli.run_command.execute", lambda *_, **__: 0)
    result = CliRunner().invoke(understudy.cli.app, ["run", "--nproc-per-node", "1", *flags, "script.py"])
    assert result.exit_code == 0, result.output
    return result.stderr.splitlines()


def test_another_torch_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _installed(monkeypatch, "2.99.0")
    first, last = tested.TORCH
    assert _run(monkeypatch, tmp_path) == [f"understudy: {tools.TORCH_UNTESTED(version='2.99.0', first=first, last=last)}"]


def test_a_tested_torch_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _installed(monkeypatch, f"{tested.TORCH[0]}.3")
    assert _run(monkeypatch, tmp_path) == []


def test_a_submitted_job_runs_under_other_torches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The torch of the nodes counts, not the one of the command line."""
    _installed(monkeypatch, "2.99.0")
    given: list[Any] = []

    def submit(*arguments: Any) -> int:
        given.append(arguments)
        return 0

    monkeypatch.setattr("understudy.cli.run_command.submit", submit)
    assert _run(monkeypatch, tmp_path, "--orchestrator", "http://127.0.0.1:1") == []
    assert given
