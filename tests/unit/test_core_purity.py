"""`core`, and the quorum's rules, import only `core` and pure modules of the standard library; the control plane never imports torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import understudy

ROOT = Path(understudy.__file__).parent
PURE = {
    "__future__",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "math",
    "typing",
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


QUORUM = [ROOT / "orchestrator" / "quorum" / name for name in ("raft.py", "roll.py")]


@pytest.mark.parametrize("path", [*sorted((ROOT / "core").glob("*.py")), *QUORUM], ids=lambda path: path.stem)
def test_core_is_pure(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            ours = name == "understudy.core" or name.startswith("understudy.core.")
            assert ours or name in PURE, f"{path.name} imports {name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in IMPURE_CALLS, f"{path.name} calls {node.func.id}"


@pytest.mark.parametrize("path", sorted((ROOT / "core").glob("*.py")), ids=lambda path: path.stem)
def test_what_a_worker_or_the_job_is_changes_in_one_place(path: Path) -> None:
    """Which asks the tables of `transitions.py`: everybody else calls `JobState.become` and `JobState.enter`."""
    for node in ast.walk(ast.parse(path.read_text())):
        written = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)}
        if isinstance(node, ast.FunctionDef) and node.name not in ("__init__", "become", "enter"):
            assert not written & {"state", "phase"}, f"{path.name}: {node.name}"


@pytest.mark.parametrize("package", ["core", "links", "detectors", "orchestrator", "agent", "cli", "chaos"])
def test_the_control_plane_never_imports_torch(package: str) -> None:
    modules = [
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__main__.py"
    ]
    assert modules
    code = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "False", done.stderr
