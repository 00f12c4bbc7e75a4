"""Manifests of the pods that these tests start."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.api import Object

PYTHON = ["python", "-u", "-c"]
SLEEPER = "sleep infinity"
SLEEPS = ["sh", "-c", f"trap 'exit 0' TERM; {SLEEPER} & wait"]  # ends at once when it is told to


def pod(
    name: str,
    command: list[str],
    *,
    labels: dict[str, str] | None = None,
    container: Object | None = None,
    node: str | None = None,
    gpus: int = 0,
    **spec: Any,
) -> Object:
    """One container. `node`: where it has to run. `container` and `spec`: their other fields."""
    own: Object = {"name": "main", "image": "none", "command": command, **(container or {})}
    if gpus:
        own["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    if node:
        spec = {"nodeSelector": {"kubernetes.io/hostname": node}, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": [own], **spec}}
