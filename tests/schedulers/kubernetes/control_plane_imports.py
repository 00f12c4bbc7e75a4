"""Run in a separate Python: list the packages that the controller and an orchestrator on Kubernetes import.

Fails if one of them is torch, or is neither listed (`deploy/docker/control-plane.txt`) nor a dependency of a listed one.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

ROOMS = ("understudy.controller", "understudy.orchestrator", "understudy.schedulers.kubernetes")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_all_that_come(names: list[str]) -> set[str]:
    """Distributions that a `pip install` of these brings, extras left out."""
    found: set[str] = set()
    left = [normal(name) for name in names]
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            wanted = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found.add(name)
        left += [normal(re.split(r"[^A-Za-z0-9._-]", each)[0]) for each in wanted if "extra ==" not in each]
    return found


class Without:
    """Does not find these."""

    def __init__(self, tops: set[str]) -> None:
        self._tops = tops

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self._tops:
            raise ModuleNotFoundError(f"{name} is not among what the control plane's image has", name=name)


def asked_for(path: str) -> Iterator[str]:
    """Top names that this file imports, in functions as well; not those for types only."""
    tree = ast.parse(Path(path).read_text())
    typed = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inside in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) not in typed and isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif id(node) not in typed and isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def main(names: list[str]) -> None:
    whose = packages_distributions()
    allowed = with_all_that_come(names)
    others = {top for top, owners in whose.items() if not any(normal(owner) in allowed for owner in owners)}
    sys.meta_path.insert(0, Without(others - {"understudy"}))
    for room in ROOMS:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            importlib.import_module(module.name)
    assert "torch" not in sys.modules
    loaded = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "understudy" and module.__file__]
    direct = {top for path in loaded for top in asked_for(path)} - {*sys.stdlib_module_names, "understudy"}
    print(json.dumps({top: sorted(normal(owner) for owner in whose.get(top, [])) for top in sorted(direct)}))


if __name__ == "__main__":
    main(sys.argv[1:])
