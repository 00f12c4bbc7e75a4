"""Globals of installed packages that the script's source names: `torch.nn.functional.scale = 0.5`, `math.tau`. Those of modules in
`sys.modules` that come from no file, as a script makes them. And hooks of all modules.

Such packages have tens of thousands of globals, which their own code changes, too. A script can only depend on one that it names.

Known limits: by the name of a module, or of a package around it, as a module of the script has imported it; what `setattr` or an alias
sets is not seen.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import numpy
import torch

from understudy.worker.census import roots
from understudy.worker.census.leaves import FIXED
from understudy.worker.census.readers.reading import is_hook_of_script
from understudy.worker.census.roots import PROCESS
from understudy.worker.census.walk import Path
from understudy.worker.guards.loop_variables import nodes_of

_STATE = (*FIXED, dict, list, set, deque, OrderedDict, Counter, defaultdict, torch.Tensor, numpy.ndarray)


def foreign_globals() -> Iterator[tuple[Path, Any]]:
    """Return plain values and containers that the script's modules name in modules of others, and hooks of all modules."""
    for name, hooks in vars(torch.nn.modules.module).items():
        if name.startswith("_global_") and name.endswith("_hooks"):
            yield Path((PROCESS, "torch.nn"), name.removeprefix("_")), [hook for hook in hooks.values() if is_hook_of_script(hook)]
    for name in _made(tuple(sys.modules)):
        if (module := sys.modules.get(name)) is not None:
            yield from ((Path((PROCESS, name), key), value) for key, value in list(vars(module).items()) if type(value) in _STATE)
    for _, names in roots.modules():
        for first, *rest in _chains(str(names["__file__"])):
            owner = names.get(first)
            for name in rest[:-1]:
                owner = vars(owner).get(name) if type(owner) is types.ModuleType else None
            if type(owner) is types.ModuleType and not roots.is_own(owner.__name__):
                value = vars(owner).get(rest[-1])
                if value is not None and type(value) in _STATE:  # an object that a library makes late, as `wandb.run`, is not the script's
                    yield Path((PROCESS, owner.__name__), rest[-1]), value


@functools.lru_cache(1)
def _made(every: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules that no import has made, without parts of packages. `every`: the names of all modules."""
    top = [(name, module) for name, module in list(sys.modules.items()) if "." not in name and name != "__main__"]
    return tuple(name for name, module in top if type(module) is types.ModuleType and _is_made(vars(module)))


def _is_made(names: dict[str, Any]) -> bool:
    return names.get("__spec__") is None and names.get("__loader__") is None and "__file__" not in names


@functools.lru_cache(64)
def _chains(file: str) -> tuple[tuple[str, ...], ...]:
    """Return names with attributes in a source: ("math", "tau")."""
    found = dict.fromkeys(_names(node) for node in nodes_of(file) if isinstance(node, ast.Attribute))
    return tuple(filter(None, found))


def _names(node: ast.Attribute) -> tuple[str, ...]:
    """Return the names; empty for an attribute of something other than names."""
    names: list[str] = []
    part: ast.expr = node
    while isinstance(part, ast.Attribute):
        names.append(part.attr)
        part = part.value
    return (part.id, *reversed(names)) if isinstance(part, ast.Name) else ()
