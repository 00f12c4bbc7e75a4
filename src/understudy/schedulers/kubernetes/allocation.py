"""The pods of a job on Kubernetes, for the orchestrator that leads.

The controller makes pods until there are as many as in the resource; it does nothing else to those with workers. Only the orchestrator
knows the use of each pod and when it is no longer needed: it labels, deletes and claims pods. A label is written with the version of the
pod that was read, so it cannot overwrite a later change. A pod is deleted at once only if its workers are fenced.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from understudy.common.bounds import plain
from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import TAKEN, Allocation, ClaimedNode, JobSummary, NodeSeen, Place, SchedulerAway, SchedulerFailed, Work
from understudy.schedulers.kubernetes import job_status, names, node_health, pods
from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, group_path, labelled, path
from understudy.schedulers.kubernetes.devices import Devices
from understudy.schedulers.kubernetes.informer import Informer
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.places import labels_of
from understudy.schedulers.kubernetes.resource import Job, owned
from understudy.schedulers.kubernetes.tolerations import Tolerated

FENCED = 1  # seconds of grace for a pod whose workers are fenced: 0 would not wait for its kubelet
CLAIMED = 1 << 20  # node rank of the first claimed pod: those that the controller makes are below
WRITES = 5  # attempts to write the status while others write it
SHOWN_AGAIN = 10.0  # seconds between two updates of the step, while nothing else changes


class KubernetesAllocation(Allocation):
    def __init__(self, api: Api, group: str, namespace: str, name: str, uid: str) -> None:
        """Read the job. Raises `SchedulerFailed` if it does not exist, or if another one has its name now."""
        self._api = api
        self._keys = Keys(group)
        self._path = group_path(f"{group}/{names.VERSION}", names.PLURAL, namespace, name)
        self._namespace, self._name, self._uid = namespace, name, uid
        self._job = self._read(None)
        first = tuple(names.node(name, number) for number in range(self._job.spec.total()))
        self.place = Place(names.NAME, name, first, 0, (), ())
        self._devices = Devices(api, namespace) if self._job.spec.evidence.device_taints else None
        self._pods = Informer(api, path("pods", namespace), labelSelector=labelled({self._keys.job: name}))
        self._nodes = Informer(api, path("nodes", ""))
        self._known: dict[str, Object] = {}  # pods that were seen, by name
        self._gone: set[str] = set()  # those of them that this process has deleted
        self._retired: set[str] = set()  # nodes that the job has left
        self._tolerated = Tolerated(self._keys)
        self._shown: JobSummary | None = None
        self._shown_at = 0.0

    def share(self, secret: str) -> None:
        raise SchedulerFailed(kubernetes_jobs.SECRET_IS_AN_OBJECT())

    def shared(self, seconds: float) -> str:
        raise SchedulerFailed(kubernetes_jobs.SECRET_IS_AN_OBJECT())

    # Queries.

    def look(self) -> Sequence[NodeSeen]:
        self._job = self._read(self._job)
        nodes = {node["metadata"]["name"]: node for node in self._nodes.objects()}
        there = {name: pod for name, pod in self._ours().items() if name not in self._gone}
        found = [self._seen(pod, nodes) for pod in there.values() if _runs(pod)]
        for name in self._known.keys() - there.keys() - self._gone:
            if self._keys.claim not in self._known[name]["metadata"]["labels"]:
                # `claims` returns the claimed ones
                found.append(NodeSeen(name, "gone", TAKEN, True, kubernetes_jobs.POD_GONE()))
        self._known |= there
        self._tolerated.forget({pod["metadata"]["uid"] for pod in there.values()})
        return found

    def _seen(self, pod: Object, nodes: Mapping[str, Object]) -> NodeSeen:
        where = nodes.get(pod["spec"].get("nodeName") or "")
        labels = labels_of(where, self._job.spec.topology_key) if where is not None else ()
        return replace(node_health.seen(pod, self._troubles(pod, nodes)), labels=labels)

    def cancelled(self) -> str:
        if not self._job.deleted:
            return ""
        return kubernetes_jobs.RESOURCE_DELETED(kind=names.KIND, namespace=self._job.namespace, job=self._job.name)

    def _troubles(self, pod: Object, nodes: Mapping[str, Object]) -> list[node_health.Trouble]:
        deleted = node_health.of_pod(pod, self._keys.leave)
        found = [deleted] if deleted is not None else []
        where = pod["spec"].get("nodeName")
        if where and where not in nodes:
            found.append(node_health.Trouble("gone", kubernetes_jobs.NODE_GONE(node=plain(where))))
        elif where:
            tolerated = self._tolerated.of(pod, (nodes[where].get("spec") or {}).get("taints") or [])
            found += node_health.of_node(nodes[where], self._job.spec.evidence, tolerated)
        return found + (self._devices.of(pod) if self._devices is not None else [])

    def _read(self, before: Job | None) -> Job:
        """Read the resource. If it has been made invalid, the earlier content stays, except for its deletion."""
        raw = self._api.read(self._path)
        if raw["metadata"]["uid"] != self._uid:
            raise Missing(kubernetes_jobs.JOB_REPLACED(kind=names.KIND, namespace=self._namespace, job=self._name))
        try:
            return Job.of(raw)
        except ValueError as error:
            if before is None:
                raise SchedulerFailed(str(error)) from error
            return replace(before, deleted="deletionTimestamp" in raw["metadata"], status=raw.get("status") or {}, raw=raw)

    def _ours(self) -> dict[str, Object]:
        """Return the pods with workers."""
        role = self._keys.role
        return {pod["metadata"]["name"]: pod for pod in self._all() if pod["metadata"]["labels"].get(role) != names.ORCHESTRATOR}

    def _all(self) -> list[Object]:
        """Return all pods, without those of a deleted job of the same name."""
        return [pod for pod in self._pods.objects() if owned(pod, self._uid)]

    # Reports.

    def record(self, text: str) -> None:
        """Do nothing: `show` includes the text."""

    def show(self, now: JobSummary) -> None:
        there = self._ours()
        known = job_status.labels(now, self._keys, self._retired)
        for name, pod in there.items():
            self._label(pod, known.get(name) or names.spare(self._keys))
        changed = self._shown is None or now.without_step() != self._shown.without_step()
        if not changed and (now == self._shown or time.monotonic() - self._shown_at < SHOWN_AGAIN):
            return
        job = self._write_status(now, there)
        for event in job_status.events(now, job, time.time()):
            self._create_event(event)
        self._shown, self._shown_at = now, time.monotonic()

    def _write_status(self, now: JobSummary, there: Mapping[str, Object]) -> Job:
        """Write the status with the version that was read, since the controller writes it, too. Return the resource as it was before."""
        for _ in range(WRITES):
            job = self._read(self._job)
            version = {"resourceVersion": job.raw["metadata"]["resourceVersion"]}
            change = {"metadata": version, "status": job_status.status(now, job, there, time.time())}
            try:
                self._api.patch(f"{self._path}/status", change)
                return job
            except Conflict as error:
                refused = error
        raise refused

    def _create_event(self, event: Object) -> None:
        try:
            self._api.create(path("events", self._namespace), event)
        except Conflict:  # it exists, perhaps from the orchestrator that led before
            return

    def _label(self, pod: Object, wanted: Mapping[str, str | None]) -> None:
        metadata = pod["metadata"]
        labels = {key: value for key, value in wanted.items() if metadata["labels"].get(key) != value}
        there = metadata.get("annotations") or {}
        notes = {key: value for key, value in self._tolerated.annotation(pod).items() if there.get(key) != value}
        if not (labels or notes) or "deletionTimestamp" in metadata:
            return
        changes = {"resourceVersion": metadata["resourceVersion"], "labels": labels, "annotations": notes}
        try:
            self._api.patch(path("pods", self._namespace, metadata["name"]), {"metadata": changes})
        except (Conflict, Missing):  # it has changed since it was read: try again the next time
            return

    # Returning and claiming nodes.

    def release(self, nodes: Collection[str], text: str) -> Sequence[str]:
        there = self._ours()
        self._retired |= set(nodes)
        for name in nodes:
            pod = there.get(name)
            if pod is not None:
                self._label(pod, {self._keys.role: names.RETIRED, self._keys.rank: None, self._keys.device: None})
                self._delete(name, pod["metadata"]["uid"], FENCED)
            self._gone.add(name)
        return list(nodes)

    def drain(self, nodes: Collection[str], reason: str) -> None:
        """Cordon their nodes, with a note of the reason. Only operators have that right by default; an installation may grant it to our
        account.
        """
        for name in nodes:
            where = self._known.get(name, {}).get("spec", {}).get("nodeName")
            if where:
                place = path("nodes", "", where)
                note = {self._keys.story: plain(reason)[:1000]}
                self._api.patch(place, {"metadata": {"annotations": note}, "spec": {"unschedulable": True}})

    def claim(self, number: int, work: Work, avoid: Collection[str], near: str, text: str) -> None:
        hosts = {pod["spec"].get("nodeName") for name, pod in self._known.items() if name in avoid}
        made = pods.worker(self._job, CLAIMED + number, {h for h in hosts if h}, number, self._near(near), self._all())
        made["metadata"]["annotations"][self._keys.story] = plain(text)[:1000]
        try:
            self._api.create(path("pods", self._namespace), made)
        except Conflict:  # claimed before
            return
        except SchedulerAway:
            raise
        except SchedulerFailed as error:
            with suppress(SchedulerFailed):
                self._create_event(job_status.refusal(self._job, str(error), time.time()))
            raise

    def claims(self) -> Mapping[int, ClaimedNode]:
        found = {}
        for pod in self._all():
            labels, status = pod["metadata"]["labels"], pod.get("status") or {}
            number = labels.get(self._keys.claim, "")
            if not number.isdecimal():
                continue
            phase = status.get("phase", "Pending")
            over = phase in ("Succeeded", "Failed")
            why = [c for c in status.get("conditions") or [] if c.get("type") == "PodScheduled" and c.get("status") == "False"]
            detail = f": {plain(why[0].get('message', ''))}" if why else ""
            found[int(number)] = ClaimedNode(
                over, pod["spec"].get("nodeName", ""), f"pod {pod['metadata']['name']} {phase.lower()}{detail}"
            )
        return found

    def give_back(self, number: int) -> None:
        """Delete the pod of the claim: its workers are fenced, or it never had any."""
        pod = self._ours().get(names.claimed(self._name, number))
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            self._delete(pod["metadata"]["name"], pod["metadata"]["uid"], None)

    def give_all_back(self) -> None:
        for number in self.claims():
            self.give_back(number)

    def record_claim(self, number: int, text: str) -> None:
        note = {"metadata": {"annotations": {self._keys.story: plain(text)[:1000]}}}
        try:
            self._api.patch(path("pods", self._namespace, names.claimed(self._name, number)), note)
        except Missing:
            return

    def finish(self, missing: Collection[str]) -> None:
        """Do nothing: the controller sees the end in the resource, and cleans up."""

    def close(self) -> None:
        for watched in (self._pods, self._nodes, *(self._devices.watched if self._devices is not None else ())):
            watched.close()

    def _near(self, node: str) -> str:
        where = self._known.get(node, {}).get("spec", {}).get("nodeName")
        key = self._job.spec.topology_key
        found = next((each for each in self._nodes.objects() if each["metadata"]["name"] == where), None) if where and key else None
        return str((found or {"metadata": {}})["metadata"].get("labels", {}).get(key, ""))

    def _delete(self, name: str, uid: str, grace: int | None) -> None:
        try:
            self._api.delete(path("pods", self._namespace, name), grace, uid)
        except (Missing, Conflict):  # it is gone, and another one may have its name
            return


def _runs(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")
