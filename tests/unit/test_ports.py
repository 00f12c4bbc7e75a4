"""Whoever uses a port does not know what is behind it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import understudy

ROOT = Path(understudy.__file__).parent
WORKER = sorted((ROOT / "worker").rglob("*.py"))
FRAMEWORKS = "understudy.worker.frameworks"
BACKENDS = "understudy.worker.transport.backends"
# Who puts the worker together makes the aggregate; faults from inside wrap it; the template reads which there are before it forks.
MAY = {"runtime.py": "aggregate", "chaos.py": "aggregate", "__main__.py": "registry"}


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", [p for p in WORKER if p.parent.name != "frameworks"], ids=lambda path: path.stem)
def test_frameworks_are_reached_through_their_port(path: Path) -> None:
    allowed = ("base", MAY.get(path.name, "base"))
    for name in _imported(path):
        if name.startswith(f"{FRAMEWORKS}."):
            assert name.split(".")[3] in allowed, f"{path.name} imports {name}"
    if path.name in ("state.py", "registration.py", "sharding.py"):
        assert not any(name.startswith(FRAMEWORKS) for name in _imported(path))


def test_the_aggregate_and_the_groups_know_nobody_by_name() -> None:
    aggregate, groups = ROOT / "worker" / "frameworks" / "aggregate.py", ROOT / "worker" / "transport" / "groups.py"
    assert {name.split(".")[3] for name in _imported(aggregate) if name.startswith(f"{FRAMEWORKS}.")} == {"base", "registry"}
    assert {name.split(".")[4] for name in _imported(groups) if name.startswith(f"{BACKENDS}.")} == {"base", "registry"}
    constants = [node.value for node in ast.walk(ast.parse(groups.read_text())) if isinstance(node, ast.Constant)]
    texts = {text.lower() for text in constants if isinstance(text, str)}
    assert texts.isdisjoint({"gloo", "nccl"})


def test_nothing_of_unittest_is_shipped() -> None:
    for path in ROOT.rglob("*.py"):
        assert not any(name.split(".")[0] == "unittest" for name in _imported(path)), path
