"""`core`, the rules of orchestrator, quorum and rails, and the detectors do no I/O: they import each other and pure modules of Python only.

Who imports whom else: import-linter, in pyproject.toml.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import understudy

ROOT = Path(understudy.__file__).parent
PURE = {
    "__future__",
    "abc",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "typing",
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


OURS = {  # in addition to modules of core
    "core": {"understudy.core"},
    "quorum": {"understudy.orchestrator.quorum.memory", "understudy.orchestrator.quorum.raft"},
    "orchestrator": {"understudy.detectors.heartbeats"},
    "detectors": {"understudy.common.page_view", "understudy.detectors.base"},
    "messages": set[str](),
    "network": set[str](),
}
QUORUM = [ROOT / "orchestrator" / "quorum" / name for name in ("memory.py", "raft.py", "roster.py")]
RULES = [ROOT / "orchestrator" / name for name in ("dispatch.py", "lease_term.py", "liveness.py")]
MESSAGES = [path for path in sorted((ROOT / "messages").rglob("*.py")) if path.name not in ("registry.py", "base.py")]
RAILS = [ROOT / "network" / "paths.py"]
DETECTORS = [ROOT / "detectors" / name for name in ("base.py", "hang.py", "heartbeats.py")]


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "core").glob("*.py")), *QUORUM, *RULES, *RAILS, *DETECTORS, *MESSAGES], ids=lambda path: path.stem
)
def test_what_decides_is_pure(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            ours = name in OURS[path.parent.name] or name.startswith(("understudy.core.", "understudy.messages"))
            assert ours or name in PURE, f"{path.name} imports {name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in IMPURE_CALLS, f"{path.name} calls {node.func.id}"


@pytest.mark.parametrize("path", sorted((ROOT / "core").glob("*.py")), ids=lambda path: path.stem)
def test_what_a_worker_or_the_job_is_changes_in_one_place(path: Path) -> None:
    """It uses the tables of `transitions.py`: all other code calls `JobState.set_worker_state` and `JobState.set_phase`."""
    for node in ast.walk(ast.parse(path.read_text())):
        written = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)}
        if isinstance(node, ast.FunctionDef) and node.name not in ("__init__", "set_worker_state", "set_phase"):
            assert not written & {"state", "phase"}, f"{path.name}: {node.name}"
