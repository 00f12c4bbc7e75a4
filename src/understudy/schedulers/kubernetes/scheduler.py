"""Kubernetes as a scheduler: what it is to start runs in a pod of its own, like the one of whoever asks; an allocation is the job whose
orchestrator's pod this is.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Mapping, Sequence

from understudy.schedulers.base import Allocation, Ended, Scheduler, SchedulerFailed, Work
from understudy.schedulers.kubernetes.allocation import KubernetesAllocation
from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, path
from understudy.schedulers.kubernetes.names import JOB_VARIABLE, NAME, NODE_VARIABLE

NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
LOOK = 1.0  # seconds


class KubernetesPod:
    """A thread asks how it stands, once a second."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self.name = name
        self._path = path("pods", namespace, name)
        self._ended: Ended | None = None
        self._wakes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._over = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=f"pod-{name}", daemon=True).start()

    def fileno(self) -> int:
        return self._wakes

    def ended(self) -> Ended | None:
        return self._ended

    def signal(self, number: signal.Signals) -> None:
        """Kubernetes knows two: to end in order, and to end."""
        if number not in (signal.SIGTERM, signal.SIGKILL):
            raise ValueError(f"{number.name}: a pod can only be asked to end (SIGTERM), or be killed")
        try:
            self._api.delete(self._path, 0 if number == signal.SIGKILL else None)
        except Missing:
            return

    def wait(self, seconds: float) -> bool:
        return self._over.wait(seconds)

    def close(self) -> None:
        self._closed.set()
        os.close(self._wakes)

    def _watch(self) -> None:
        while not self._closed.wait(LOOK):
            try:
                phase = self._api.read(self._path).get("status", {}).get("phase", "")
            except Missing:
                phase = "gone"
            except SchedulerFailed:  # nothing is known: it may come back
                continue
            if phase in ("Succeeded", "Failed", "gone"):
                self._ended = Ended(f"pod {self.name} {'is gone' if phase == 'gone' else phase.lower()}", killed=phase == "gone")
                self._over.set()
                if not self._closed.is_set():
                    os.eventfd_write(self._wakes, 1)
                return


class KubernetesScheduler(Scheduler):
    name = NAME

    def __init__(self) -> None:
        self._pods: dict[str, KubernetesPod] = {}

    def submit(self, job: Work) -> KubernetesPod:
        return self._start(job)

    def add_node(self, node: Work) -> KubernetesPod:
        return self._start(node)

    def _start(self, work: Work) -> KubernetesPod:
        if work.descriptors:
            raise ValueError(f"{work.name}: what Kubernetes starts in another pod cannot inherit descriptors")
        if self.status().get(work.name) == "running":
            raise ValueError(f"{work.name} is running already")
        try:
            with open(NAMESPACE) as file:
                namespace = file.read().strip()
            api = Api.found()
            ours = api.read(path("pods", namespace, os.environ[NODE_VARIABLE]))
            made = _like(ours, work)
            api.create(path("pods", namespace), made)
        except Conflict:
            raise ValueError(f"there is a pod {_pod_name(work.name)} already") from None
        except (SchedulerFailed, OSError, KeyError) as error:
            raise OSError(f"{work.name}: no pod can be started for it: {error}") from error
        self._pods[work.name] = pod = KubernetesPod(api, namespace, made["metadata"]["name"])
        return pod

    def drain_node(self, name: str) -> None:
        self._pods[name].signal(signal.SIGTERM)

    def status(self) -> dict[str, str]:
        found = {name: pod.ended() for name, pod in self._pods.items()}
        return {name: "running" if ended is None else ended.how for name, ended in found.items()}

    def allocation(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
        job = environment.get(JOB_VARIABLE, "")
        if not job:
            return None
        group, namespace, name, _ = job.split("/")
        return KubernetesAllocation(Api.found(), group, namespace, name)


def _like(ours: Object, work: Work) -> Object:
    """With the image, volumes and account of the pod of whoever asks."""
    container = ours["spec"]["containers"][0]
    spec = {
        key: ours["spec"][key]
        for key in ("serviceAccountName", "volumes", "nodeSelector", "tolerations", "securityContext", "imagePullSecrets")
        if key in ours["spec"]
    }
    env = [each for each in container.get("env", []) if each["name"] not in work.environment]
    env += [{"name": name, "value": value} for name, value in work.environment.items()]
    kept = {key: container[key] for key in ("image", "volumeMounts", "resources", "securityContext", "workingDir") if key in container}
    made = {"name": "work", "command": list(work.command), "env": env, **kept}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _pod_name(work.name), "ownerReferences": ours["metadata"].get("ownerReferences", [])},
        "spec": {**spec, "restartPolicy": "Never", "containers": [made]},
    }


def _pod_name(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
