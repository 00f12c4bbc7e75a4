"""Warms a spare: imports and starts what every newcomer would otherwise import and start while survivors wait.

The script is not run, only read: the packages that it imports, and those that its own modules import, are imported if they are
installed packages or part of Python. The script's own modules are left alone, because code at their top level may read the rank, which
a spare does not have yet.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from understudy.messages import worker_processes
from understudy.worker.script_files import is_of_script


def script_source(arguments: list[str]) -> Path | None:
    """Return the file that `script ...` or `-m module ...` names."""
    if arguments[:1] != ["-m"]:
        return Path(arguments[0])
    try:
        spec = importlib.util.find_spec(arguments[1])
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin else None


def _imports(source: Path) -> Iterator[str]:
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # running the script will report it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _is_installed(origin: str | None) -> bool:
    return origin in (None, "built-in", "frozen") or not is_of_script(str(origin))


def warm_imports(source: Path | None) -> list[Path]:
    """Import what the script at `source` will import. Returns the script's own modules, which are only read."""
    waiting, seen, own = [source] if source else [], set(), list[Path]()
    while waiting:
        own.append(waiting.pop())
        for name in _imports(own[-1]):
            if name in seen or name.split(".")[0] == "understudy":
                continue
            seen.add(name)
            try:
                top = importlib.util.find_spec(name.split(".")[0])
                if top is None:
                    continue
                if _is_installed(top.origin):
                    importlib.import_module(name)
                elif top.origin:
                    found = importlib.util.find_spec(name) if "." not in name else None
                    waiting.append(Path((found or top).origin or top.origin))
            except Exception as error:  # the script may guard this import; running it will report it
                print(f"understudy: {worker_processes.IMPORT_FAILED(name=name, error=error)}", file=sys.stderr)
    return own


def import_torch() -> None:
    """Import torch. Starts no thread and touches no device, so that a process may be forked afterwards."""
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel
    import torch.nn.parallel  # noqa: F401


def warm_torch() -> None:
    """Start what the first steps of a training run would start."""
    import torch

    with torch.random.fork_rng(devices=[]):
        layer = torch.nn.Linear(8, 8)
        optimizer = torch.optim.AdamW(layer.parameters())
        layer(torch.zeros(2, 8)).sum().backward()
        optimizer.step()
