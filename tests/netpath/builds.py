"""Builds the plugin and its driver, each once per run of the tests and per choice of compiler options."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "native" / "netpath"
FAST = ("-O1", "-g0")
LIMIT = 540.0  # seconds: for a busy machine


@dataclass(frozen=True)
class Build:
    library: Path
    driver: Path


def build(folder: Path, name: str, *options: str) -> Build:
    """Compile into `folder`/`name`, unless another worker of pytest has done so. Warnings are errors."""
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "done").exists():
            make = ["make", "-C", str(SOURCES), f"OUT={out}", f"CXXFLAGS={' '.join(options)}"]
            compiler = ["g++", "-std=c++20", "-Wall", "-Wextra", *options, "-I", str(SOURCES), "-o", str(out / "driver")]
            _call(make, [*compiler, str(Path(__file__).parent / "driver.cc"), "-ldl", "-pthread"])
            (out / "done").touch()
    return Build(out / "libnccl-net-understudy.so", out / "driver")


def missing_compiler() -> str:
    """Return why nothing can be built, or ""."""
    absent = [name for name in ("make", "g++") if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def _call(*commands: list[str]) -> None:
    """Run the commands at the same time."""
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for words in commands]
    for words, process in zip(commands, running, strict=True):
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, f"{' '.join(words)}\n{output}"
