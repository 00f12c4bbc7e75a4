"""`core`, and the quorum's rules, import only `core` and pure modules of the standard library. Who imports whom else: import-linter."""

from __future__ import annotations

import ast
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
