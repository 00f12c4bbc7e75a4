"""Write the rooms of the package and their imports into docs/internals/rooms.md, between two markers there.

`python scripts/import_graph.py` rewrites them. With `--check` it writes nothing; if the page is stale it prints a diff and exits with 1.
The tables show what each room imports. The layers, from the contracts in pyproject.toml, are what it may import (`make lint`).
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import grimp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.generated import ROOT, write

PAGE = ROOT / "docs" / "internals" / "rooms.md"
PACKAGE = "understudy"
WORKER = f"{PACKAGE}.worker"


def rooms(graph: grimp.ImportGraph, parent: str) -> list[str]:
    """Return the packages in `parent`."""
    return sorted(child for child in graph.find_children(parent) if graph.find_children(child))


def arrows(graph: grimp.ImportGraph, among: list[str]) -> dict[str, list[str]]:
    """Return, for each room, those that it imports directly."""
    return {
        one: [other for other in among if other != one and graph.direct_import_exists(importer=one, imported=other, as_packages=True)]
        for one in among
    }


def from_the_top(imports: dict[str, list[str]]) -> list[str]:
    """Return the rooms in an order in which each comes before those that it imports. Raises `ValueError` for a cycle."""
    left, found = dict(imports), list[str]()
    while left:
        free = sorted(one for one in left if not any(one in others for others in left.values()))
        if not free:
            raise ValueError(f"a circle among {', '.join(sorted(left))}")
        found += free
        for one in free:
            del left[one]
    return found


def purpose(room: str) -> str:
    """Return the first sentence of a room's docstring."""
    source = ROOT / "src" / room.replace(".", "/") / "__init__.py"
    text = " ".join((ast.get_docstring(ast.parse(source.read_text())) or "").split())
    return text.partition(". ")[0].rstrip(".")


def table(graph: grimp.ImportGraph, parent: str) -> list[str]:
    imports = arrows(graph, rooms(graph, parent))
    lines = ["| room | imports | purpose |", "|---|---|---|"]
    for room in from_the_top(imports):
        others = ", ".join(f"`{other.rpartition('.')[2]}`" for other in from_the_top(imports) if other in imports[room])
        lines.append(f"| `{room.removeprefix(PACKAGE + '.').replace('.', '/')}/` | {others or '-'} | {purpose(room)} |")
    return lines


def layers(package: str) -> list[str]:
    """The contract for the rooms of `package`, from the top down."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (contract["layers"] for contract in contracts if contract["type"] == "layers" and contract["containers"] == [package])
    return ["```", *found, "```"]


def made() -> str:
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    parts = [*table(graph, PACKAGE), "", *layers(PACKAGE), "", "## Inside the worker", "", *table(graph, WORKER), "", *layers(WORKER)]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(write("scripts/import_graph.py", PAGE, made, __doc__))
