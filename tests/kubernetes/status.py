"""A pod's status as a kubelet reports it: from the pod's object and the runtime's state to `status` of the API."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.api import Object
from tests.kubernetes.node import LOST
from tests.kubernetes.runtime import Attempt, Sandbox


@dataclass(frozen=True)
class Seen:
    """The observations of the pod's thread."""

    sandbox: Sandbox
    node_address: str
    waiting: dict[str, tuple[str, str]]  # by the container's name: reason and message
    ready: set[Path]  # attempts whose probe has succeeded
    final: bool  # nothing of it runs any more, or will


def moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ended(attempt: Attempt, code: int) -> Object:
    reason = "Completed" if code == 0 else "Unknown" if str(code) == LOST else "StartError" if code == 128 else "Error"
    times = {"startedAt": moment(attempt.started), "finishedAt": moment(attempt.ended)}
    return {"terminated": {"exitCode": code, "reason": reason, "containerID": _id(attempt), **times}}


def _id(attempt: Attempt) -> str:
    return f"tests://{attempt.folder.parent.parent.parent.name}/{attempt.folder.parent.name}/{attempt.number}"


def _container(container: Object, seen: Seen) -> Object:
    name = container["name"]
    attempts = seen.sandbox.attempts(name)
    codes = [attempt.exit_code for attempt in attempts]
    runs = bool(attempts) and codes[-1] is None
    ready = runs and ("readinessProbe" not in container or attempts[-1].folder in seen.ready)
    found: Object = {"name": name, "image": container.get("image", ""), "imageID": "", "ready": ready, "started": runs}
    found["restartCount"] = max(0, len(attempts) - 1)
    found["lastState"] = {}
    if attempts:
        found["containerID"] = _id(attempts[-1])
    if runs:
        found["state"] = {"running": {"startedAt": moment(attempts[-1].started)}}
        if len(attempts) > 1 and codes[-2] is not None:
            found["lastState"] = _ended(attempts[-2], codes[-2])
    elif name in seen.waiting and not seen.final:
        reason, message = seen.waiting[name]
        found["state"] = {"waiting": {"reason": reason, "message": message}}
        if attempts and codes[-1] is not None:
            found["lastState"] = _ended(attempts[-1], codes[-1])
    elif attempts and codes[-1] is not None:
        found["state"] = _ended(attempts[-1], codes[-1])
    else:
        found["state"] = {"waiting": {"reason": "ContainerCreating"}}
    return found


def _last_codes(containers: list[Object], sandbox: Sandbox) -> list[int | None]:
    """How the last attempt of each has ended; None for one that runs, or is not begun."""
    found = [sandbox.attempts(container["name"]) for container in containers]
    return [attempts[-1].exit_code if attempts else None for attempts in found]


def _phase(pod: Object, seen: Seen) -> str:
    policy = pod["spec"]["restartPolicy"]
    initial, containers = pod["spec"].get("initContainers") or [], pod["spec"]["containers"]
    before, codes = _last_codes(initial, seen.sandbox), _last_codes(containers, seen.sandbox)
    if seen.final:
        return "Succeeded" if all(code == 0 for code in [*before, *codes]) else "Failed"
    if policy == "Never" and any(code not in (None, 0) for code in before):
        return "Failed"
    if any(code != 0 for code in before):
        return "Pending"
    if all(code is not None for code in codes) and policy != "Always":
        if all(code == 0 for code in codes):
            return "Succeeded"
        return "Failed" if policy == "Never" else "Running"
    begun = [bool(seen.sandbox.attempts(container["name"])) for container in containers]
    return "Running" if all(begun) else "Pending"


def pod_status(pod: Object, seen: Seen) -> Object:
    """For a strategic merge: conditions of others stay."""
    initial, containers = pod["spec"].get("initContainers") or [], pod["spec"]["containers"]
    states = [_container(container, seen) for container in containers]
    ready = all(state["ready"] for state in states)
    initialized = all(code == 0 for code in _last_codes(initial, seen.sandbox))
    there = {condition["type"]: condition for condition in pod["status"].get("conditions") or []}
    conditions = []
    for kind, holds in (("Initialized", initialized), ("Ready", ready), ("ContainersReady", ready), ("PodScheduled", True)):
        status = "True" if holds else "False"
        known = there.get(kind)
        since = known["lastTransitionTime"] if known and known["status"] == status and known.get("lastTransitionTime") else None
        condition = {"type": kind, "status": status, "lastTransitionTime": since or moment(time.time())}
        conditions.append(condition if holds else {**condition, "reason": "ContainersNotReady"})
    found: Object = {"phase": _phase(pod, seen), "conditions": conditions, "containerStatuses": states, "hostIP": seen.node_address}
    if initial:
        found["initContainerStatuses"] = [_container(container, seen) for container in initial]
    if address := seen.sandbox.address:
        found |= {"podIP": address, "podIPs": [{"$patch": "replace"}, {"ip": address}]}  # one that was switched on again has another
    found["startTime"] = pod["status"].get("startTime") or moment(time.time())
    return found
