"""What makes way for the script's own modules: in a process of its own, because modules are taken away there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
import sys, importlib
import os, json.decoder, queue, wave
from understudy.worker.process.displaced import give_way
print(*give_way(sys.argv[1]))
sys.path.insert(0, sys.argv[1])
print(*(name for name in sys.argv[2:] if hasattr(importlib.import_module(name), "OWN")))
"""


def looked(folder: Path, *names: str) -> list[list[str]]:
    answer = subprocess.run([sys.executable, "-c", LOOK, str(folder), *names], capture_output=True, text=True, check=True)
    return [line.split() for line in answer.stdout.splitlines()]


def test_modules_of_the_scripts_folder_come_first(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("OWN = True")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("OWN = True")
    assert looked(tmp_path, "queue", "json", "wave") == [["json", "queue"], ["queue", "json"]]


@pytest.mark.parametrize("name", ["os", "sys", "encodings", "understudy"])
def test_what_stays(tmp_path: Path, name: str) -> None:
    """What Python has before any script, and what is ours."""
    (tmp_path / f"{name}.py").write_text("OWN = True")
    assert looked(tmp_path, name) == [[], []]


def test_a_folder_without_code_is_no_module_that_displaces_one(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "notes.txt").write_text("")
    assert looked(tmp_path, "queue") == [[], []]
