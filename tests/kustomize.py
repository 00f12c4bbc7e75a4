"""What `kubectl apply -k` would apply, of kustomizations as simple as ours: lists of resources, and components with patches that add."""

from __future__ import annotations

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
KUBERNETES = ROOT / "deploy" / "kubernetes"
NVSENTINEL = KUBERNETES / "nvsentinel"
KUBECTL = shutil.which("kubectl")

needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on PATH")

Object = dict[str, Any]


def documents(path: Path) -> list[Object]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


def resolved(folder: Path, *components: Path) -> list[Object]:
    """In the order in which they are named. Raises `ValueError` where a kustomization has more in it than this understands."""
    found = _resources(folder, {"resources"})
    for component in components:
        found += _resources(component, {"resources", "patches"})
        for patch in _kustomization(component).get("patches", []):
            target = patch["target"]
            (meant,) = [each for each in found if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"])]
            for change in yaml.safe_load((component / patch["path"]).read_text()):
                _add(meant, change)
    return found


def by_kubectl(folder: Path) -> list[Object]:
    assert KUBECTL is not None
    made = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, check=True, timeout=120)
    return [found for found in yaml.safe_load_all(made.stdout) if found]


def order(found: list[Object]) -> list[Object]:
    return sorted(copy.deepcopy(found), key=lambda each: (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]))


def _kustomization(folder: Path) -> Object:
    (found,) = documents(folder / "kustomization.yaml")
    return found


def _resources(folder: Path, known: set[str]) -> list[Object]:
    content = _kustomization(folder)
    if other := content.keys() - known - {"apiVersion", "kind"}:
        raise ValueError(f"{folder}: a kustomization with {', '.join(sorted(other))}")
    return [each for name in content["resources"] for each in documents(folder / name)]


def _add(meant: Object, change: Object) -> None:
    *way, last = change["path"].strip("/").split("/")
    if change["op"] != "add" or last != "-":
        raise ValueError(f"a patch that does something else than to add to a list: {change}")
    place: Any = meant
    for word in way:
        place = place[int(word)] if isinstance(place, list) else place[word]
    place.append(change["value"])
