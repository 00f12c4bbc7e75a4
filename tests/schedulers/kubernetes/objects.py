"""Objects of Kubernetes as these tests need them."""

from __future__ import annotations

from typing import Any

from understudy.schedulers.base import JobSummary
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.resource import Job

GROUP = "understudy.dev"
OWNED = {"ownerReferences": [{"kind": "UnderstudyJob", "name": "gpt", "uid": "u-1"}]}  # by the job of these tests


def resource(status: Object | None = None, deleted: str = "", **spec: Any) -> Object:
    """`deleted`: when that was asked for."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "mine", "command": ["understudy", "run", "train.py"]}]}}
    metadata: Object = {"name": "gpt", "namespace": "ml", "uid": "u-1", "resourceVersion": "7", "generation": 2}
    if deleted:
        metadata["deletionTimestamp"] = deleted
    given = {"pods": 2, "template": template, **spec}
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": "UnderstudyJob", "metadata": metadata, "spec": given, "status": status or {}}


def job(status: Object | None = None, deleted: str = "", **spec: Any) -> Job:
    return Job.of(resource(status, deleted, **spec))


def summary(ranks: tuple[str, ...] = ("gpt-0", "gpt-1"), exit_code: int | None = None, **fields: Any) -> JobSummary:
    known: Object = {"lost": ("gpt-9",), "tainted": (), "incidents": (), "message": "", "text": "trains", **fields}
    return JobSummary("training", 7, 2, all(ranks), ranks, 1, exit_code=exit_code, **known)


def pod(name: str, role: str = "spare", phase: str = "Running", node: str = "", number: int = -1, **more: Any) -> Object:
    """`more`: of its metadata; `claim` is a label."""
    labels = {f"{GROUP}/job": "gpt", f"{GROUP}/role": role, f"{GROUP}/number": str(number)}
    if (claim := more.pop("claim", None)) is not None:
        labels[f"{GROUP}/claim"] = str(claim)
    metadata = {"name": name, "namespace": "ml", "uid": f"u-{name}", "resourceVersion": "1", "labels": labels, **OWNED, **more}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}
