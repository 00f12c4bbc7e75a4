"""A lock for one of several processes: a `Lease` of the cluster, as Kubernetes' own components use it.

The holder renews it. Another process takes it when it has seen the same version for the lease's duration, by its own clock: clocks of
different hosts are not compared. Each process that takes it increments the transitions, which is its *fence*. Every change is made with the
version that was read, so of two simultaneous changes one is rejected. If the lease belongs to another owner, such as a deleted job of the
same name, the process waits until Kubernetes has removed it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, group_path
from understudy.schedulers.kubernetes.resource import owned

GROUP = "coordination.k8s.io/v1"


class Lost(Exception):
    """Another process has the lease."""


class LeaderLease:
    """One process's access to the lease. Every method may raise `SchedulerFailed`."""

    def __init__(self, api: Api, namespace: str, name: str, holder: str, seconds: int, owner: Object | None = None) -> None:
        """Create the access. `holder`: a unique name. `owner`: of the lease, which is deleted with it."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._holder = holder
        self._seconds = seconds
        self._owner = owner
        self._mine: Object | None = None  # as last written
        self._seen = ("", 0.0)  # the version of another holder, and when it was first seen
        self.other = ""  # the holder, if it is another process

    def take(self) -> int | None:
        """Take the lease if possible, and return the fence; None while another process has it."""
        try:
            found = self._api.read(self._path())
        except Missing:
            return self._write(None, 1)
        if self._belongs_to_another(found):
            self.other = ""
            return None
        spec = found.get("spec") or {}
        self.other = spec.get("holderIdentity") or ""
        version = found["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = version, time.monotonic()
        good = float(spec.get("leaseDurationSeconds") or self._seconds)
        if self.other and time.monotonic() - self._seen[1] <= good:
            return None
        return self._write(found, int(spec.get("leaseTransitions") or 0) + 1)

    def renew(self) -> None:
        """Renew the lease. Raises `Lost`."""
        assert self._mine is not None
        if self._write(self._mine, int(self._mine["spec"]["leaseTransitions"])) is None:
            raise Lost

    def give_up(self) -> None:
        """Give up the lease, so that another process can take it at once."""
        if self._mine is not None:
            self._mine["spec"]["holderIdentity"] = ""
            try:
                self._api.replace(self._path(), self._mine)
            except (Conflict, Missing):
                return

    def _belongs_to_another(self, lease: Object) -> bool:
        """Return whether the lease has another owner. One without an owner may be taken, because Kubernetes will not remove it."""
        owners = lease["metadata"].get("ownerReferences") or []
        return self._owner is not None and bool(owners) and not owned(lease, self._owner["uid"])

    def _write(self, before: Object | None, fence: int) -> int | None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = (before or {}).get("spec") or {}
        acquired = old.get("acquireTime") if before is not None and old.get("holderIdentity") == self._holder else now
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._seconds,
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": fence,
        }
        try:
            if before is None:
                metadata: Object = {"name": self._name, "namespace": self._namespace}
                if self._owner is not None:
                    metadata["ownerReferences"] = [self._owner]
                lease = {"apiVersion": GROUP, "kind": "Lease", "metadata": metadata, "spec": spec}
                self._mine = self._api.create(group_path(GROUP, "leases", self._namespace), lease)
            else:
                metadata = dict(before["metadata"])
                if self._owner is not None:
                    metadata["ownerReferences"] = [self._owner]
                self._mine = self._api.replace(self._path(), {**before, "metadata": metadata, "spec": spec})
        except (Conflict, Missing):
            return None
        self.other = ""
        return fence

    def _path(self) -> str:
        return group_path(GROUP, "leases", self._namespace, self._name)
