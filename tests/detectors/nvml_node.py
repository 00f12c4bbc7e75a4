"""A node with GPUs for tests of the NVML detector: a stand-in for NVIDIA's library (stand_ins/nvml.c), because no GPU is there.

The loader finds the stand-in by LD_LIBRARY_PATH, which is read at the start of a process: the detector runs in a child, which looks
on request, at a given time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CC = shutil.which("cc")
SOURCE = Path(__file__).parent / "stand_ins" / "nvml.c"
START = 1000.0

CHILD = """
import dataclasses, json, sys
from understudy.detectors.nvml import Nvml
now = 0.0


def reading():
    # The device that the detector reports to wait for, at each query of one kind and after a look.
    query, seen = detector._nvml.nvmlDeviceGetTotalEccErrors, []
    detector._nvml.nvmlDeviceGetTotalEccErrors = lambda *given: (seen.append(detector.reading), query(*given))[1]
    detector.look()
    detector._nvml.nvmlDeviceGetTotalEccErrors = query
    return {"at a query": sorted(set(seen)), "after": detector.reading}


for line in sys.stdin:
    order, now = json.loads(line)
    if order == "make":
        detector = Nvml(clock=lambda: now)
    found = detector.look() if order == "look" else Nvml.missing() if order == "missing" else None
    if order == "reading":
        found = reading()
    print(json.dumps([dataclasses.asdict(one) for one in found] if isinstance(found, list) else found), flush=True)
"""


class Gpus:
    """The answers of the stand-in to a process that has `variables` in its environment."""

    def __init__(self, library: Path, state: Path) -> None:
        self._state = state
        self.lines: dict[str, str] = {"order": "0"}
        self.variables = {"LD_LIBRARY_PATH": str(library), "NVML_STAND_IN": str(state)}

    def gpu(self, number: int, **lines: int | str) -> None:
        for name, value in lines.items():
            self.lines[f"gpu{number}.{name.replace('__', '.')}"] = str(value)

    def healthy(self, number: int) -> None:
        """All that a GPU of some generation could answer, and no error."""
        for call in ("handle", "fields"):
            self.lines.pop(f"gpu{number}.{call}", None)
        self.gpu(number, uuid=f"GPU-{number}", address=f"00000000:{number}B:00.0", corrected=0, uncorrected=0, rows="0 0 0 0", pages=0)
        self.gpu(number, clocks=0, replays=0, xids="", field__38__0=0, field__45__0=0, field__52__0=0, field__59__0=0, field__230__0=0)
        self.gpu(number, **{f"field__215__{link}": 0 for link in range(36)})

    def write(self) -> None:
        """All of it counts from now on, at once: it may be read meanwhile."""
        partial = self._state.with_suffix(".partial")
        partial.write_text("".join(f"{key} {value}\n" for key, value in self.lines.items()))
        partial.rename(self._state)


class Node(Gpus):
    """A node with GPUs, and the detector in its child process."""

    def __init__(self, library: Path, state: Path) -> None:
        super().__init__(library, state)
        self.now = START
        environment = {**os.environ, **self.variables, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", CHILD]
        self._child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def fresh(self) -> Node:
        """With one healthy GPU, and a detector that has not looked yet."""
        self.lines, self.now = {"order": "0"}, START
        self.healthy(0)
        self.make()
        return self

    def make(self) -> None:
        self.ask("make")

    def look(self, after: float = 1.0) -> list[dict[str, Any]]:
        """Return the detector's evidence `after` seconds from the last look."""
        self.now += after
        found = self.ask("look")
        assert all(one["detector"] == "nvml" and one["subject"] == "device" and one["name"] == "" for one in found)
        return list(found)

    def kinds(self, after: float = 1.0) -> list[tuple[str, str, str]]:
        return [(one["part"], one["kind"], one["severity"]) for one in self.look(after)]

    def ask(self, order: str) -> Any:
        self.write()
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps([order, self.now]) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, "the child has ended: see its standard error"
        return json.loads(line)

    def close(self) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()


def build(folder: Path) -> None:
    """Build the stand-in in `folder`. Skips the test where that is impossible."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    if CC is None:
        pytest.skip("no C compiler")
    subprocess.run([CC, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", SOURCE], check=True)


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Node]:
    """One for all tests of a module: the child takes longer to start than all of them."""
    build(folder)
    node = Node(folder, folder / "state")
    try:
        yield node
    finally:
        node.close()


def only(found: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(found) == 1, found
    return found[0]
