"""Decide which pods of a job to create and delete. Rules only: no I/O, no clock.

Before the job has formed, each of its pods has a fixed number, and a failed one is created again. From then on a missing pod is replaced by
one with a new number, which is the next spare. Only the orchestrator knows which ranks are where, and when a pod is no longer needed
(`schedulers.kubernetes.allocation`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from understudy.common.bounds import plain
from understudy.messages import controller, kubernetes_jobs
from understudy.schedulers.kubernetes import names, pods
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.resource import Job, owned

FAREWELL = 30.0  # seconds for a deleted job to end normally
AFTER = 20.0  # seconds for pods to end by themselves when the job is over
QUICK = 5  # seconds of grace for pods that the controller ends
TERMINAL = ("Succeeded", "Failed")
STUCK = ("CreateContainerConfigError", "CreateContainerError", "InvalidImageName", "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff")


@dataclass
class Plan:
    create: list[Object] = field(default_factory=list)
    delete: list[tuple[str, str, int | None]] = field(default_factory=list)  # name, uid, seconds of grace
    next_number: int = 0  # of the next replacement pod
    restarts: int = 0  # of pods before the job has formed
    failed: str = ""  # why the job is impossible
    stuck: str = ""  # why a pod cannot start, which only an operator can change
    gone: bool = False  # nothing of it is left


def plan(job: Job, there: Sequence[Object], image: str, silent: Collection[str], ending: float, may_create: bool = True) -> Plan:
    """Return the plan for one job.

    `there`: pods with its label. `image`: of orchestrators. `silent`: nodes of the cluster that do not answer. `ending`: for how many
    seconds the job has been over, or deleted; 0: neither. `may_create`: whether pods with workers may be created now.
    """
    keys = Keys(job.group)
    status = job.status
    there = [pod for pod in there if _belongs(pod, job)]
    made = Plan(next_number=max(int(status.get("nextNumber") or 0), job.spec.total()), restarts=int(status.get("podRestarts") or 0))
    if job.deleted or job.over:
        _end(job, there, silent, ending, made)
        return made
    made.stuck = next(filter(None, map(_stuck, there)), "")
    _orchestrators(job, there, image, silent, made)
    workers = [pod for pod in there if _role(pod, keys) != names.ORCHESTRATOR and keys.claim not in pod["metadata"]["labels"]]
    avoid = status.get("avoid") or []
    if status.get("formed"):
        live = [pod for pod in workers if "deletionTimestamp" not in pod["metadata"] and _role(pod, keys) != names.RETIRED]
        never = pods.avoided(job.spec.template) | {*avoid}
        waits = [pod for pod in live if not pod["spec"].get("nodeName") and pods.avoided(pod) - never]
        made.delete += [_deletion(pod, silent) for pod in waits]  # for a node that it must not have, and may have by now
        live = [pod for pod in live if pod not in waits]
        made.next_number = max([made.next_number, *(_number(pod, keys) + 1 for pod in workers)])
        for _ in range(job.spec.total() - len(live) if may_create else 0):
            made.create.append(pods.worker(job, made.next_number, avoid, there=there))
            made.next_number += 1
        return made
    numbers = {_number(pod, keys) for pod in workers}
    made.create += [
        pods.worker(job, number, avoid, there=there) for number in range(job.spec.total()) if may_create and number not in numbers
    ]
    for pod in workers:
        if _phase(pod) == "Failed" and "deletionTimestamp" not in pod["metadata"]:
            if made.restarts >= job.spec.max_restarts:
                made.failed = kubernetes_jobs.POD_FAILED(pod=pod["metadata"]["name"], reason=_why(pod))
            else:
                made.restarts += 1
                made.delete.append(_deletion(pod, silent))
    return made


def _orchestrators(job: Job, there: Sequence[Object], image: str, silent: Collection[str], made: Plan) -> None:
    """Plan the orchestrators' pods. One on a node that does not answer is replaced: its number is free when its object is gone."""
    for number, name in enumerate(names.orchestrators(job.name, job.spec.orchestrators)):
        pod = next((pod for pod in there if pod["metadata"]["name"] == name), None)
        if pod is None:
            made.create.append(pods.orchestrator(job, number, image, silent, there))
        elif pod["spec"].get("nodeName") in silent:
            made.delete.append((name, pod["metadata"]["uid"], 0))
        elif _phase(pod) in TERMINAL and "deletionTimestamp" not in pod["metadata"]:
            made.delete.append(_deletion(pod, silent))


def _end(job: Job, there: Sequence[Object], silent: Collection[str], ending: float, made: Plan) -> None:
    """Plan the end of the job.

    Running pods end by themselves, if there is an orchestrator to order it. Ended pods stay until the job is deleted, so that their output
    can be read.
    """
    running = [pod for pod in there if _phase(pod) == "Running"]
    waits = [pod for pod in there if _phase(pod) not in (*TERMINAL, "Running")]
    patience = AFTER if job.over else FAREWELL
    if running and ending < patience:
        made.delete += [_deletion(pod, silent) for pod in waits]
    elif job.deleted:
        made.delete += [_deletion(pod, silent) for pod in there]
        made.gone = not there
    else:
        made.delete += [_deletion(pod, silent) for pod in (*running, *waits)]


def _belongs(pod: Object, job: Job) -> bool:
    """Return whether the pod belongs to this job.

    Pods of a deleted job of the same name are left to Kubernetes. Those that `kubectl delete --cascade=orphan` leaves end with the job as
    well.
    """
    return owned(pod, job.uid) or (job.deleted and not pod["metadata"].get("ownerReferences"))


def _deletion(pod: Object, silent: Collection[str]) -> tuple[str, str, int | None]:
    metadata = pod["metadata"]
    return metadata["name"], metadata["uid"], 0 if pod["spec"].get("nodeName") in silent else QUICK


def _why(pod: Object) -> str:
    """Return why the pod has ended."""
    status = pod.get("status") or {}
    ended = [(each.get("state") or {}).get("terminated") for each in status.get("containerStatuses") or []]
    words = [f"exit code {each.get('exitCode')} ({each.get('reason', '')})" for each in ended if each]
    return "; ".join(words) or status.get("message") or status.get("reason") or "no reason is given"


def _stuck(pod: Object) -> str:
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    waits = [(each.get("state") or {}).get("waiting") or {} for each in containers]
    found = next((each for each in waits if each.get("reason") in STUCK), None)
    if found is None or "deletionTimestamp" in pod["metadata"]:
        return ""
    message = f": {plain(found['message'])}" if found.get("message") else ""
    return controller.POD_CANNOT_START(pod=pod["metadata"]["name"], reason=found["reason"], message=message)


def _role(pod: Object, keys: Keys) -> str:
    return str(pod["metadata"]["labels"].get(keys.role, ""))


def _number(pod: Object, keys: Keys) -> int:
    text = pod["metadata"]["labels"].get(keys.number, "")
    return int(text) if text.isdecimal() else -1


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")
