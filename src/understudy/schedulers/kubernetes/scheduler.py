"""Kubernetes as a scheduler: each process runs in a separate pod, like the caller's. An allocation is the job of this
orchestrator's pod.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import Allocation, Ended, SchedulerFailed, Work
from understudy.schedulers.kubernetes.allocation import KubernetesAllocation
from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, path
from understudy.schedulers.kubernetes.names import JOB_VARIABLE, NAME, NODE_VARIABLE
from understudy.schedulers.remote import RemoteLauncher, RemoteProcess

NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesPod(RemoteProcess):
    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self.name = name
        self._api = api
        self._path = path("pods", namespace, name)
        super().__init__(f"pod-{name}")

    def look(self) -> Ended | None:
        try:
            phase = (self._api.read(self._path).get("status") or {}).get("phase")
        except Missing:
            return Ended(f"pod {self.name} is gone", killed=True)
        return Ended(f"pod {self.name} {phase.lower()}", killed=False) if phase in ("Succeeded", "Failed") else None

    def signal(self, number: signal.Signals) -> None:
        """End the process in order or at once, the two ways that Kubernetes has."""
        if number not in (signal.SIGTERM, signal.SIGKILL):
            raise ValueError(kubernetes_jobs.ONLY_TERM_OR_KILL(signal=number.name))
        try:
            self._api.delete(self._path, 0 if number == signal.SIGKILL else None)
        except Missing:
            return


class KubernetesScheduler(RemoteLauncher):
    name = NAME

    def begin(self, work: Work) -> KubernetesPod:
        try:
            namespace, own = NAMESPACE.read_text().strip(), os.environ[NODE_VARIABLE]
        except (OSError, KeyError) as error:
            raise SchedulerFailed(kubernetes_jobs.NOT_OUR_POD(name=work.name, reason=str(error))) from error
        api = Api.found()
        made = _like(api.read(path("pods", namespace, own)), work)
        try:
            api.create(path("pods", namespace), made)
        except Conflict:
            raise ValueError(kubernetes_jobs.POD_EXISTS(pod=made["metadata"]["name"])) from None
        return KubernetesPod(api, namespace, made["metadata"]["name"])

    def allocation(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
        job = environment.get(JOB_VARIABLE, "")
        if not job:
            return None
        group, namespace, name, uid = job.split("/")
        return KubernetesAllocation(Api.found(), group, namespace, name, uid)


def _like(ours: Object, work: Work) -> Object:
    """Return a pod with the image, volumes and account of the caller's pod."""
    container = ours["spec"]["containers"][0]
    spec = {
        key: ours["spec"][key]
        for key in ("serviceAccountName", "volumes", "nodeSelector", "tolerations", "securityContext", "imagePullSecrets")
        if key in ours["spec"]
    }
    spec["volumes"] = [each for each in spec.get("volumes", []) if not _is_token(each)]  # the server adds a new one
    env = [each for each in container.get("env", []) if each["name"] not in work.environment]
    env += [{"name": name, "value": value} for name, value in work.environment.items()]
    kept = {key: container[key] for key in ("image", "volumeMounts", "resources", "securityContext", "workingDir") if key in container}
    there = {each["name"] for each in spec["volumes"]}
    kept["volumeMounts"] = [each for each in kept.get("volumeMounts", []) if each["name"] in there]
    name = re.sub(r"[^a-z0-9-]+", "-", work.name.lower()).strip("-")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "ownerReferences": ours["metadata"].get("ownerReferences", [])},
        "spec": {**spec, "restartPolicy": "Never", "containers": [{"name": "work", "command": list(work.command), "env": env, **kept}]},
    }


def _is_token(volume: Object) -> bool:
    return any("serviceAccountToken" in source for source in (volume.get("projected") or {}).get("sources") or [])
