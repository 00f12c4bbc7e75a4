"""Every scenario file, word for word. `language.py` explains how to read and to renew them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.language import Scenario

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    assert Scenario().run(text) == text


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 20
