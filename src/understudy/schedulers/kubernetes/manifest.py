"""Generate a complete manifest for a job on Kubernetes, with a comment for everything that is not obvious. Needs no Kubernetes client."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from understudy.messages import kubernetes_jobs
from understudy.schedulers.kubernetes.names import GROUP, JOB, KIND, VERSION

# A domain with a dot, and a name. Kubernetes reserves names without a domain, and kubernetes.io.
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
EXTENDED_RESOURCE = re.compile(rf"(?=.{{1,253}}/){_LABEL}(\.{_LABEL})+/[A-Za-z0-9]([-\w.]{{0,61}}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Wish:
    program: Sequence[str]  # the script and its arguments
    image: str
    name: str
    namespace: str = ""
    pods: int = 1  # with ranks
    spare_pods: int = 1
    floating: int = 0
    ranks: int = 1  # in each pod
    gpus: int = 0  # of each pod
    gpu_resource: str = "nvidia.com/gpu"  # the resource name of the nodes' device plugin
    priority_class: str = ""  # of floating spares
    options: Sequence[str] = ()  # further options of `understudy run`


def manifest(wish: Wish) -> str:
    """Return the manifest. Raises `ValueError` for a value that cannot be written into one."""
    if not wish.program:
        raise ValueError(kubernetes_jobs.NO_PROGRAM())
    if JOB.fullmatch(wish.name) is None:
        raise ValueError(kubernetes_jobs.BAD_JOB_NAME(name=wish.name))
    if EXTENDED_RESOURCE.fullmatch(wish.gpu_resource) is None:
        raise ValueError(kubernetes_jobs.BAD_GPU_RESOURCE(name=wish.gpu_resource))
    words = ["understudy", "run", *wish.options, *wish.program]
    lines = [f"apiVersion: {GROUP}/{VERSION}", f"kind: {KIND}", "metadata:", f"  name: {wish.name}"]
    lines += [f"  namespace: {_text(wish.namespace)}"] if wish.namespace else []
    lines += ["spec:", f"  pods: {wish.pods}  # with ranks", f"  ranksPerPod: {wish.ranks}"]
    lines += ["  spares:", f"    pods: {wish.spare_pods}  # further ones, whose workers wait"]
    if wish.floating:
        lines += ["    floating:", f"      pods: {wish.floating}  # asked for when a rank has no other place, and given back"]
        lines += [f"      priorityClassName: {_text(wish.priority_class)}"] if wish.priority_class else []
    lines += ["  template:  # of a pod, as anywhere", "    spec:"]
    lines += ["      terminationGracePeriodSeconds: 120  # for its ranks to leave it"]
    lines += ["      securityContext: {runAsNonRoot: true}  # false for an image whose user is root; if it has a name, add runAsUser"]
    lines += ["      containers:", "        - name: trainer", f"          image: {_text(wish.image)}"]
    lines += [f"          command: [{', '.join(_text(word) for word in words)}]  # in place of torchrun"]
    if wish.gpus:
        lines += ["          resources:", "            limits:", f"              {wish.gpu_resource}: {wish.gpus}"]
    lines += ["          volumeMounts:", "            - {name: shm, mountPath: /dev/shm}"]
    lines += ["      volumes:", "        - {name: shm, emptyDir: {medium: Memory}}  # for NCCL and data loaders"]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """Quote a text as JSON, which is YAML."""
    return json.dumps(value) if re.fullmatch(r"[A-Za-z][A-Za-z0-9./:@_-]*", value) is None or ": " in value else value
