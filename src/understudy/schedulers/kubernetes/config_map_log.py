"""The log of a job in ConfigMaps: its journal survives every pod, and the API server keeps it for this job only.

Each object has the entries that were written together, and its name contains its number. Two writers cannot both create the next one, so a
stale writer is detected by the rejection, whatever its clock shows. An object never changes. The objects are deleted with the job's
resource, which takes Kubernetes a while. Those of a deleted job of the same name are not read, because the names contain the uid of their
job.

Known limits: objects are never merged, so a job of very many incidents has very many objects.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import SchedulerAway
from understudy.schedulers.kubernetes.api import Api, Conflict, Object, labelled, path
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.resource import owned

MOST = 500_000  # bytes of the entries of one object: the server accepts a megabyte


class Overtaken(Exception):
    """Another process has written."""


class ConfigMapLog:
    """The log of one job. Every method may raise `SchedulerFailed`."""

    def __init__(self, api: Api, group: str, namespace: str, job: str, owner: Object) -> None:
        self._api = api
        self._keys = Keys(group)
        self._namespace = namespace
        self._job = job
        self._owner = owner
        self._next = 0  # the number of the next object
        self._prefix = f"{job}-log-{owner['uid'][:8]}"

    def read(self) -> list[str]:
        """Return all entries. The next `write` appends to them."""
        objects, _ = self._api.listed(path("configmaps", self._namespace), labelSelector=labelled({self._keys.log: self._job}))
        mine = [each for each in objects if owned(each, self._owner["uid"])]
        parts = {int(each["metadata"]["labels"][self._keys.number]): each for each in mine}
        for number in range(len(parts)):
            if number not in parts:
                raise ValueError(kubernetes_jobs.LOG_PART_MISSING(number=number, namespace=self._namespace, job=self._job))
        self._next = len(parts)
        if any(self._keys.uid not in each["metadata"]["labels"] for each in mine):  # an earlier version has begun it, and may write as well
            self._prefix = f"{self._job}-log"
        return [entry for number in sorted(parts) for entry in json.loads(parts[number]["data"]["entries"])]

    def write(self, entries: Sequence[str], writer: str) -> None:
        """Append entries. `writer`: a unique name of the writer. Raises `Overtaken`.

        After a `SchedulerAway` it is unknown whether the entries were written: write the same again.
        """
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{self._prefix}-{self._next:06}",
                "namespace": self._namespace,
                "labels": {self._keys.log: self._job, self._keys.number: str(self._next), self._keys.uid: self._owner["uid"]},
                "ownerReferences": [self._owner],
            },
            "immutable": True,
            "data": {"entries": json.dumps(list(entries)), "writer": writer},
        }
        try:
            self._api.create(path("configmaps", self._namespace), body)
        except Conflict:
            name = body["metadata"]["name"]  # type: ignore[index]
            there = self._api.read(path("configmaps", self._namespace, name))
            if not owned(there, self._owner["uid"]):
                raise SchedulerAway(kubernetes_jobs.LOG_PART_OF_ANOTHER(name=name, namespace=self._namespace)) from None
            if there["data"] != body["data"]:
                raise Overtaken from None
        self._next += 1


def parts(entries: Sequence[str]) -> list[list[str]]:
    """Split entries into groups that fit into one object; an entry is never split."""
    found: list[list[str]] = []
    size = MOST
    for entry in entries:
        length = len(entry.encode()) + 8
        if size + length > MOST:
            found.append([])
            size = 0
        found[-1].append(entry)
        size += length
    return found
