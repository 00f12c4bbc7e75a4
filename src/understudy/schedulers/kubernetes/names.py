"""The names of a job's objects on Kubernetes, which show to which job each belongs."""

from __future__ import annotations

import re

NAME = "kubernetes"
GROUP = "understudy.dev"  # the default group; the controller has an option for another one (`--group`)
VERSION = "v1alpha1"
KIND = "UnderstudyJob"
PLURAL = "understudyjobs"
PORT = 29400  # of orchestrators
JOB = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")  # a job's name: it is also a Service's, and with a suffix a host's
FIELDS = "understudy"  # the field manager in Kubernetes' records

JOB_VARIABLE = "UNDERSTUDY_KUBERNETES_JOB"  # in an orchestrator's pod: GROUP/NAMESPACE/NAME/UID of its resource
POD_VARIABLE = "UNDERSTUDY_POD"  # in a pod with workers: the settings of `understudy run` there, as JSON (`pod_settings`)
NODE_VARIABLE = "UNDERSTUDY_NODE"  # the same: the pod's name
ADDRESS_VARIABLE = "UNDERSTUDY_ADDRESS"  # its address
HOST_VARIABLE = "UNDERSTUDY_HOST"  # the Kubernetes node of the pod

ACTIVE, SPARE, RETIRED, ORCHESTRATOR = "active", "spare", "retired", "orchestrator"  # values of the label `role`


class Keys:
    """Labels and annotations below a group."""

    def __init__(self, group: str) -> None:
        self.job = f"{group}/job"
        self.role = f"{group}/role"
        self.rank = f"{group}/rank"  # "8", "8-15", "3_7": first and last, or each
        self.device = f"{group}/device"  # "gpu0", "gpu0_gpu1": the devices of these ranks, in order
        self.generation = f"{group}/generation"
        self.number = f"{group}/number"  # the node rank: each replacement pod has a new one
        self.claim = f"{group}/claim"  # the number of the claim that a floating spare serves
        self.uid = f"{group}/uid"  # of the resource: different for another job of the same name
        self.log = f"{group}/log"  # the name of the job whose journal an object is a part of
        self.finalizer = f"{group}/finalizer"
        self.leave = f"{group}/leave"  # annotation of a pod: its ranks must leave it, and why
        self.tolerated = f"{group}/tolerated"  # annotation of a pod: taints of its node that are no evidence (`tolerations`)
        self.story = f"{group}/story"  # annotation: the state as text


def orchestrators(job: str, count: int) -> list[str]:
    """Return the names of the orchestrators' pods."""
    return [f"{job}-orchestrator-{number}" for number in range(count)]


def node(job: str, number: int) -> str:
    return f"{job}-{number}"


def claimed(job: str, number: int) -> str:
    return f"{job}-claim-{number}"


def token(job: str, uid: str) -> str:
    """Return the name of the secret. The controller may not read a secret's owner, so the name contains the job's uid."""
    return f"{job}-token-{uid[:8]}"


def earlier_token(job: str) -> str:
    """Return the name of the secret of a job that an earlier version of the controller has made."""
    return f"{job}-token"


def account(job: str) -> str:
    """Return the name of its orchestrators' service account, role binding, and leader lease."""
    return f"{job}-orchestrator"


def urls(job: str, namespace: str, count: int, port: int, scheme: str) -> str:
    return ",".join(f"{scheme}://{pod}.{job}.{namespace}.svc:{port}" for pod in orchestrators(job, count))


def spare(keys: Keys) -> dict[str, str | None]:
    """Return the labels of a pod without a rank. None: the label is removed."""
    return {keys.role: SPARE, keys.rank: None, keys.device: None}


def devices(found: list[str]) -> str | None:
    """Return devices as a label value; None if none is known. Characters that a label cannot contain, as in a MIG device's name, become
    dots.
    """
    return re.sub(r"[^-A-Za-z0-9_.]", ".", "_".join(filter(None, found)))[:63].strip("-_.") or None


def runs(ranks: list[int]) -> str:
    """Return ranks as a label value, which allows few characters: "2", "8-15", "3_7"."""
    if len(ranks) > 1 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return "_".join(map(str, ranks))[:63].rstrip("_")
