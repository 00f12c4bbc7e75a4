"""Settings of the process on which a training may depend: the environment, torch's and numpy's switches. Read and set like names of a
module.

Known limits: the modes that a `with` sets (gradients, autocast) are left to the script, whose frames a newcomer enters again. Variables
of the launcher are each worker's own.
"""

from __future__ import annotations

import ast
import contextlib
import decimal
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import torch

from understudy.worker.guards.loop_variables import nodes_of, text_of

_LAUNCHER = ("UNDERSTUDY_", "TORCHELASTIC_", "MASTER_", "LOCAL_", "GROUP_", "ROLE_", "RANK", "WORLD_SIZE", "OMP_", "PYTEST_")
_SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch precision of float32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "torch deterministic algorithms": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "torch threads": (torch.get_num_threads, torch.set_num_threads),
    "decimal precision": (lambda: decimal.getcontext().prec, lambda value: setattr(decimal.getcontext(), "prec", value)),
    "decimal rounding": (lambda: decimal.getcontext().rounding, lambda value: setattr(decimal.getcontext(), "rounding", value)),
    "numpy floating-point errors": (numpy.geterr, lambda value: numpy.seterr(**value)),
}


class Settings:
    """A table of the settings by name."""

    of: Any = None

    def __init__(self, modules: Callable[[], list[tuple[str, dict[str, Any]]]]) -> None:
        """Take the modules of the script, by name."""
        self._modules = modules

    def items(self) -> Mapping[str, Any]:
        """Return the present ones."""
        found: dict[str, Any] = {f"os.environ[{name!r}]": value for name in self._named() if (value := os.environ.get(name)) is not None}
        for name, (get, _) in _SWITCHES.items():
            with contextlib.suppress(RuntimeError):  # torch's older and newer names of one switch do not mix
                found[name] = get()
        return found

    def put(self, name: str, value: Any) -> None:
        """Set one. Raises `ValueError` for a name or a value that is not allowed."""
        if name in _SWITCHES:
            try:
                _SWITCHES[name][1](value)
            except (RuntimeError, TypeError) as error:
                raise ValueError(name) from error
            return
        variable = name.removeprefix("os.environ['").removesuffix("']")
        if f"os.environ[{variable!r}]" != name or variable not in self._named() or not isinstance(value, str):
            raise ValueError(name)
        if os.environ.get(variable) != value:
            os.environ[variable] = value

    def _named(self) -> set[str]:
        """Return the variables that the script's source names: all others are of the node or of a library."""
        found = {name for _, names in self._modules() for name in _texts(str(names["__file__"]))}
        return {name for name in found if not name.startswith(_LAUNCHER)}


@functools.lru_cache(64)
def _texts(file: str) -> frozenset[str]:
    """Return texts in a source that could be names of variables, if the environment is used at all."""
    if "environ" not in text_of(file) and "putenv" not in text_of(file):
        return frozenset()
    nodes = list(nodes_of(file))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    found = {text for text in texts if text.isidentifier() and text.isupper()}
    return frozenset(found.union(*(_keys(node) for node in nodes)))


def _keys(node: ast.AST) -> set[str]:
    """Return a text by which the environment itself is asked, of whatever letters: `environ["name"]`, `environ.get("name")`."""
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript) and _is_environment(node.value):
        key = node.slice
    elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
        asked = _is_environment(node.func.value) or node.func.attr in ("getenv", "putenv")
        key = node.args[0] if asked else None
    return {key.value} if isinstance(key, ast.Constant) and isinstance(key.value, str) else set()


def _is_environment(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "environ"
