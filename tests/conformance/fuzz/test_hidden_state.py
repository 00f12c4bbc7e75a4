"""Drawn scripts that hide state, as real jobs with kills: every state is carried over, reported by its name, or refused.

UNDERSTUDY_FUZZ_SEED and UNDERSTUDY_FUZZ_COUNT choose the scripts. If a script has a state
that is wrong and perhaps reported, this state is tried alone. A script that fails is made smaller, and printed.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.fuzz.composing import Drawn, composed
from tests.conformance.fuzz.drawing import drawn, of_the_environment, write
from tests.conformance.fuzz.shrinking import shrunk
from tests.conformance.reported import culprits
from tests.conformance.scripts import read
from tests.conformance.suite import Result, attempt

COUNT, SEED = of_the_environment()


@pytest.fixture(scope="module")
def scripts() -> list[Drawn]:
    return drawn(COUNT, SEED)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(COUNT), ids=lambda number: f"seed-{SEED}-{number:03}")
def test_no_hidden_state_is_silently_wrong(number: int, scripts: list[Drawn], tmp_path: Path) -> None:
    runs = itertools.count()

    def tried(script: Drawn) -> Result:
        folder = tmp_path / str(next(runs))
        return attempt(read(write(composed(script), folder / "drawn.py")), folder, lambda script, what: None, alone=False)

    script = scripts[number]
    result = tried(script)
    alone = [replace(script, hidden=(script.names[name],)) for name in culprits(result.found)] if result.found.verdict == "unclear" else []
    for script in alone:
        if (result := tried(script)).wrong:
            break
    if result.wrong:
        verdict = result.found.verdict
        smallest = shrunk(script, culprits(result.found), lambda script: tried(script).found.verdict == verdict)
        pytest.fail(f"{result.wrong}\nThe smallest script that fails so (seed {SEED}, number {number}):\n\n{composed(smallest)}")
