"""A job on Kubernetes for tests of what is made of it: no cluster."""

from __future__ import annotations

from typing import Any

from understudy.schedulers.base import Standing
from understudy.schedulers.kubernetes import names
from understudy.schedulers.kubernetes.resource import Job

Object = dict[str, Any]

CONTAINER: Object = {"name": "train", "image": "example/train:1", "command": ["understudy", "run", "/workspace/train.py"]}
SPEC: Object = {"pods": 2, "template": {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [CONTAINER]}}}


def raw(name: str = "j", spec: Object | None = None, status: Object | None = None, **metadata: Any) -> Object:
    """As the API server has it."""
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "n", "uid": "8a4d0c5e-0000-4000-8000-000000000001", "resourceVersion": "1", **metadata},
        "spec": SPEC if spec is None else spec,
        "status": status or {},
    }


def job(**spec: Any) -> Job:
    return Job.of(raw(spec=SPEC | spec))


def standing_of(ranks: tuple[str, ...] = ("j-0", "j-1"), exit_code: int | None = None, **fields: Any) -> Standing:
    known: Object = {"lost": ("j-9",), "tainted": (), "incidents": (), "message": "", "text": "trains", **fields}
    return Standing("training", 7, 2, all(ranks), ranks, 1, exit_code=exit_code, **known)
