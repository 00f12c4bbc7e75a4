"""Named points: nothing happens there unless somebody listens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy.worker import points


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    points._reached.clear()
    points._through.clear()


def test_nobody_listens() -> None:
    value = [1]
    points.reach("vote")
    assert points.through("streams", value, rank=1) is value
    assert not points._reached
    assert not points._through


def test_who_listens_is_called_in_order_with_the_context() -> None:
    heard: list[tuple[str, int]] = []
    points.on("vote", lambda flags: heard.append(("first", flags)))
    points.on("vote", lambda flags: heard.append(("second", flags)))
    points.reach("vote", flags=3)
    points.reach("quiesce")
    assert heard == [("first", 3), ("second", 3)]


def test_a_value_passes_all_listeners() -> None:
    points.passing("position", lambda value, source: value + source)
    points.passing("position", lambda value, source: value * 10)
    assert points.through("position", 1, source=2) == 30


def test_every_point_of_the_runtime_is_in_the_table_and_the_other_way_round() -> None:
    """The table at the top of the module is what a tool's author reads."""
    assert points.__doc__ is not None
    rows = [line for line in points.__doc__.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([a-z ]+)`", row.split("|")[1])}
    sources = Path(points.__file__).parent.rglob("*.py")
    used = {name for path in sources for name in re.findall(r'points\.(?:reach|through)\(\s*"([a-z ]+)"', path.read_text())}
    assert listed - {"setup", "newcomer"} == used
