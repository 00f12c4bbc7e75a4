"""Code that uses a port does not know its implementations. The contracts in pyproject.toml limit imports (`lint-imports`)."""

from __future__ import annotations

import ast
from pathlib import Path

import understudy

ROOT = Path(understudy.__file__).parent


def test_groups_know_no_backend_by_name() -> None:
    source = (ROOT / "worker" / "transport" / "groups.py").read_text()
    texts = {node.value.lower() for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert texts.isdisjoint({"gloo", "nccl"})


def test_nothing_of_unittest_is_shipped() -> None:
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "unittest" for name in names), path
