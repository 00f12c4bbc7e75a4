"""Named points: nothing happens there unless a client listens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy.worker import hooks


@pytest.fixture(autouse=True)
def no_clients() -> Iterator[None]:
    yield
    hooks._listeners.clear()
    hooks._filters.clear()


def test_without_listeners_nothing_happens() -> None:
    value = [1]
    hooks.fire("vote")
    assert hooks.filter("streams", value, rank=1) is value
    assert not hooks._listeners
    assert not hooks._filters


def test_who_listens_is_called_in_order_with_the_context() -> None:
    heard: list[tuple[str, int]] = []
    hooks.on("vote", lambda flags: heard.append(("first", flags)))
    hooks.on("vote", lambda flags: heard.append(("second", flags)))
    hooks.fire("vote", flags=3)
    hooks.fire("quiesce")
    assert heard == [("first", 3), ("second", 3)]


def test_a_value_passes_all_listeners() -> None:
    hooks.on_filter("position", lambda value, source: value + source)
    hooks.on_filter("position", lambda value, source: value * 10)
    assert hooks.filter("position", 1, source=2) == 30


def test_every_point_of_the_runtime_is_in_the_table_and_the_other_way_round() -> None:
    """The table at the top of the module is what a tool's author reads."""
    assert hooks.__doc__ is not None
    rows = [line for line in hooks.__doc__.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([a-z ]+)`", row.split("|")[1])}
    sources = Path(hooks.__file__).parent.rglob("*.py")
    used = {name for path in sources for name in re.findall(r'hooks\.(?:fire|filter)\(\s*"([a-z ]+)"', path.read_text())}
    assert listed - {"setup", "newcomer"} == used
