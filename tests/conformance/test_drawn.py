"""A few conformance scripts in each run of the gate, drawn by the commit's hash, so that over time all of them are run."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.conformance.runs import ROOT
from tests.conformance.scripts import Script, find
from tests.conformance.suite import attempt

COUNT = 2
RANKS = 3  # at most: larger ones take too long for the gate
LIMIT = 120.0  # seconds, the usual limit of a script: longer ones are left to `make conformance`


def commit() -> str:
    """Return the hash of the commit that is checked out, or "" outside of a repository."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def drawn(scripts: list[Script], seed: str, count: int = COUNT) -> list[Script]:
    """Return `count` scripts; another seed draws others."""
    usual = [script for script in scripts if script.ranks <= RANKS and script.limit <= LIMIT]
    return sorted(usual, key=lambda script: hashlib.sha256(f"{seed} {script.name}".encode()).hexdigest())[:count]


@pytest.mark.gate
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", drawn(find(), commit()), ids=lambda script: script.name)
def test_it_is_as_described_in_its_header(script: Script, tmp_path: Path) -> None:
    if script.missing:
        pytest.skip(script.missing)
    assert attempt(script, tmp_path, lambda script, what: None, alone=False).wrong == ""


@pytest.mark.gate
def test_every_script_has_its_turn() -> None:
    scripts = find()
    seen = {script.name for number in range(4000) for script in drawn(scripts, str(number))}
    assert {script.name for script in scripts if script.ranks <= RANKS and script.limit <= LIMIT} == seen
    assert len(seen) > len(scripts) * 0.8
