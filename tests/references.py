"""Runs that nothing disturbs, with which jobs are compared: each is made once and kept from one test session to the next.

A run under torchrun is a function of its script, its arguments, its ranks, the versions of what computes, and the machine. `Run.key` is a
digest of all these. The files that the run leaves behind are kept below this key in pytest's cache (`.pytest_cache/d/references`), for
pytest and for programs such as `python -m tests.matrix` alike. `pytest --cache-clear` and `make clean` remove them.

Rules:
- A run that fails is not kept.
- What is kept never changes. A key is a symbolic link to a folder; the link is made when the run has ended.
- A lock for each key makes other processes and threads wait for the first, instead of making the run again.
- UNDERSTUDY_FRESH_REFERENCES=1 makes every run again, once in each process, and keeps the new one.

Limits: of Understudy's own source, the key covers what a script runs through under torchrun (`PLAIN`) and what the script imports by name.
Do not keep runs whose files depend on anything else: the time, the process, or arguments that differ from one session to the next.
"""

from __future__ import annotations

import ast
import fcntl
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.processes import marked

ROOT = Path(__file__).parents[1]
STORE = ROOT / ".pytest_cache" / "d" / "references"  # where pytest's `config.cache.mkdir("references")` would be
FRESH = "UNDERSTUDY_FRESH_REFERENCES"
FOLDER = "FOLDER"  # stands for the run's folder in arguments and variables
OUTPUT = "output.txt"
LIMIT = 240.0  # seconds; generous, because machines are slow and busy
PLAIN = tuple(ROOT / "src/understudy/worker" / room for room in ("api", "collectives", "data", "guards"))
COMPUTES = ("torch", "numpy", "torchdata")
# Variables of the session that change what a script computes.
PREFIXES = ("ATEN_", "GLOO_", "KMP_", "MKL_", "OMP_", "OPENBLAS_", "PYTHONHASHSEED", "TORCH")

_made = set[str]()  # keys whose runs this process has made


@dataclass(frozen=True)
class Run:
    script: Path
    arguments: tuple[str, ...] = ()
    ranks: int | None = 2  # None: one process, started without torchrun
    variables: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()  # empty files that are in the folder from the beginning

    @property
    def key(self) -> str:
        inputs = {
            "sources": {str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name): _digest(path) for path in self._sources()},
            "arguments": self.arguments,
            "ranks": self.ranks,
            "variables": dict(self.variables),
            "session": {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)},
            "files": self.files,
            "machine": _machine(),
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]

    def command(self, folder: Path) -> list[str]:
        launcher = [] if self.ranks is None else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]
        return [sys.executable, *launcher, str(self.script), *(word.replace(FOLDER, str(folder)) for word in self.arguments)]

    def _sources(self) -> list[Path]:
        plain = [path for folder in PLAIN for path in folder.rglob("*.py")]
        return sorted({*plain, *imported(self.script)})


def undisturbed(run: Run, limit: float = LIMIT) -> Path:
    """Gives the folder with the files of the run, to be read only. Makes the run if it is not kept; it must end with exit code 0."""

    def compute(folder: Path) -> None:
        for name in run.files:
            (folder / name).touch()
        variables = {name: value.replace(FOLDER, str(folder)) for name, value in run.variables.items()}
        path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        with marked() as mark, (folder / OUTPUT).open("wb") as output:
            code = subprocess.run(
                run.command(folder),
                cwd=folder,
                env=mark.environment(PYTHONPATH=path, PYTHONWARNINGS="ignore", COLUMNS="200", **variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=limit,
            ).returncode
        assert code == 0, f"{run} ended with exit code {code}:\n{(folder / OUTPUT).read_text(errors='replace')}"

    return kept(run.key, compute)


def kept(key: str, compute: Callable[[Path], None]) -> Path:
    """Gives the folder that is kept as `key`. If there is none, `compute` fills a new one; if it raises, nothing is kept."""
    STORE.mkdir(parents=True, exist_ok=True)
    link = STORE / key
    with (STORE / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if link.is_dir() and (key in _made or os.environ.get(FRESH, "0") == "0"):
            return link.resolve()
        folder = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=STORE))
        try:
            compute(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        new = STORE / f"{folder.name}.new"
        new.symlink_to(folder.name)
        new.replace(link)  # one that is replaced stays where it is: another process may be reading it
        _made.add(key)
        return folder


def imported(script: Path) -> Iterator[Path]:
    """The script and the files of the project that it imports: its neighbours and the tests' modules, with what those import, and
    Understudy's modules, without.
    """
    waiting, seen = [script.resolve()], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        if not path.is_relative_to(ROOT / "src"):
            names = [name for node in ast.walk(ast.parse(path.read_bytes())) for name in _names(node)]
            waiting += [found for name in names for found in _files(name, path.parent)]


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _files(module: str, neighbours: Path) -> list[Path]:
    parts = module.split(".")
    places = [folder.joinpath(*parts).with_suffix(".py") for folder in (neighbours, ROOT, ROOT / "src")]
    return [place.resolve() for place in places if place.is_file()]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache
def _machine() -> list[str | None]:
    """What rounds: the versions of the libraries, and the processor, whose instructions they choose from."""
    found = [sys.version, platform.machine(), str(os.cpu_count())]
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    found += [line for line in first if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return [*found, *(_version(name) for name in COMPUTES)]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
