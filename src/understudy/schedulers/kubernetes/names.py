"""How everything of a job is called on Kubernetes, so that whoever finds it knows whose it is."""

from __future__ import annotations

import re

NAME = "kubernetes"
GROUP = "understudy.dev"  # what a cluster calls it that has it under another name, the controller is told (`--group`)
VERSION = "v1alpha1"
KIND = "UnderstudyJob"
PLURAL = "understudyjobs"
PORT = 29400  # of orchestrators
JOB = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")  # the name of one: it is a Service's, too, and with what is put behind it a host's
FIELDS = "understudy"  # who writes, in Kubernetes' records

JOB_VARIABLE = "UNDERSTUDY_KUBERNETES_JOB"  # in an orchestrator's pod: GROUP/NAMESPACE/NAME/UID of its resource
POD_VARIABLE = "UNDERSTUDY_POD"  # in a pod with workers: what `understudy run` goes by there, as JSON (`told`)
NODE_VARIABLE = "UNDERSTUDY_NODE"  # the same: the pod's name
ADDRESS_VARIABLE = "UNDERSTUDY_ADDRESS"  # its address
HOST_VARIABLE = "UNDERSTUDY_HOST"  # the Kubernetes node that it is on

ACTIVE, SPARE, RETIRED, ORCHESTRATOR = "active", "spare", "retired", "orchestrator"  # of the label `role`


class Keys:
    """Labels and annotations below a group."""

    def __init__(self, group: str) -> None:
        self.job = f"{group}/job"
        self.role = f"{group}/role"
        self.rank = f"{group}/rank"  # "8", "8-15", "3_7": of the first to the last, or each
        self.device = f"{group}/device"  # "gpu0", "gpu0_gpu1": what these ranks compute on, in their order
        self.generation = f"{group}/generation"
        self.number = f"{group}/number"  # the node rank: a new one for each pod that comes later
        self.claim = f"{group}/claim"  # the number of the claim that a floating spare serves
        self.uid = f"{group}/uid"  # of the resource: another job of the same name has another one
        self.log = f"{group}/log"  # the name of the job whose journal an object is a part of
        self.finalizer = f"{group}/finalizer"
        self.leave = f"{group}/leave"  # annotation of a pod: its ranks are to leave it, and why
        self.tolerated = f"{group}/tolerated"  # annotation of a pod: taints of its node that are no evidence (`tolerations`)
        self.story = f"{group}/story"  # annotation: what has become of it


def orchestrators(job: str, count: int) -> list[str]:
    """Their pods' names."""
    return [f"{job}-orchestrator-{number}" for number in range(count)]


def node(job: str, number: int) -> str:
    return f"{job}-{number}"


def claimed(job: str, number: int) -> str:
    return f"{job}-claim-{number}"


def token(job: str, uid: str) -> str:
    """The secret. The controller may not read whose a secret is, so its name says which job's it is."""
    return f"{job}-token-{uid[:8]}"


def earlier_token(job: str) -> str:
    """The secret of a job that an earlier version of the controller has made."""
    return f"{job}-token"


def account(job: str) -> str:
    """The service account of its orchestrators, their role binding, and the lock of the one that leads."""
    return f"{job}-orchestrator"


def urls(job: str, namespace: str, count: int, port: int, scheme: str) -> str:
    return ",".join(f"{scheme}://{pod}.{job}.{namespace}.svc:{port}" for pod in orchestrators(job, count))


def spare(keys: Keys) -> dict[str, str | None]:
    """Labels of a pod that has no rank. None: not any more."""
    return {keys.role: SPARE, keys.rank: None, keys.device: None}


def devices(found: list[str]) -> str | None:
    """As the value of a label; None if none is known. What a label may not have in it, as in the name of a part of a GPU, becomes a dot."""
    return re.sub(r"[^-A-Za-z0-9_.]", ".", "_".join(filter(None, found)))[:63].strip("-_.") or None


def runs(ranks: list[int]) -> str:
    """As the value of a label, which may not have everything in it: "2", "8-15", "3_7"."""
    if len(ranks) > 1 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return "_".join(map(str, ranks))[:63].rstrip("_")
