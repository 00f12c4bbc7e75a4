"""The kubelet of a node of the test cluster: registers the node, renews its lease, and has a thread for every pod that is bound to it.

    python -m tests.kubernetes.kubelet CONFIGURATION

There is no container runtime here: `runtime.py` starts containers as processes in namespaces, in this machine's file system. An image is a
folder, whose files a container finds where it starts (`Cluster.image`). So what this cannot show: builds and registries of images, a real
kubelet's own faults and delays, CNI plugins, DNS servers and kube-proxy, device plugins (the GPUs are a number), limits of resources,
securityContext, evictions by the kubelet, `kubectl logs` and `exec` (logs are files).

A kubelet that is killed leaves its pods running; one that is started again goes on with them, and ends those that were deleted meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.api import STRATEGIC, Access, Api, Follower, Object, Refused
from tests.kubernetes.pod import Place, Worker
from tests.kubernetes.status import moment

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEWED_EVERY = 2.0  # seconds; a kubelet's own is 10
SAID_AGAIN = 4.0  # seconds without an answer, after which the node's status must be sent again
FIRST_POD, LAST_POD = 2, 254


@dataclass(frozen=True)
class Configuration:
    """As `host.py` writes it."""

    name: str
    address: str
    folder: str
    server: str
    port: int
    authority: str
    token: str
    capacity: dict[str, str]
    variables: dict[str, str]
    needed: list[str]
    images: str  # a folder with one of each


class Kubelet:
    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        folder = Path(configuration.folder)
        access = Access(configuration.server, configuration.port, Path(configuration.authority), configuration.token)
        self._api = Api(access)
        self._heartbeat = Api(access, limit=3.0)
        self._place = Place(
            name=configuration.name,
            address=configuration.address,
            disk=folder,
            layers=folder / "layers",
            variables=configuration.variables,
            needed=configuration.needed,
            images=Path(configuration.images),
            names=configuration.server,
            api=self._api,
        )
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()
        selector = f"spec.nodeName={self._configuration.name}"
        Follower(self._api, "/api/v1/pods", self._tell, self._listed, fieldSelector=selector).start()
        signal.pause()

    # The node

    def _node(self) -> Object:
        own = self._configuration
        now = moment(time.time())
        states = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        conditions = [{"type": kind, "status": status, "reason": "StandIn", "lastHeartbeatTime": now} for kind, status in states.items()]
        addresses = [{"type": "InternalIP", "address": own.address}, {"type": "Hostname", "address": own.name}]
        status = {"capacity": own.capacity, "allocatable": own.capacity, "conditions": conditions, "addresses": addresses}
        labels = {"kubernetes.io/hostname": own.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": own.name, "labels": labels}, "status": status}

    def _beat(self) -> None:
        """Report for ever that the node is ready, once and again after every silence; renew the lease."""
        pause = threading.Event()
        heard: float | None = None
        while True:
            begun = time.monotonic()
            try:
                if heard is None or begun - heard > SAID_AGAIN:
                    self._say_ready()
                self._renew()
                heard = begun
            except (OSError, Refused) as error:
                print(f"heartbeat: {error}", flush=True)
                if isinstance(error, Refused):
                    heard = None
            pause.wait(max(0.2, begun + RENEWED_EVERY - time.monotonic()))

    def _say_ready(self) -> None:
        node = self._node()
        with contextlib.suppress(Refused):
            self._heartbeat.create("/api/v1/nodes", node)
        self._heartbeat.patch(f"/api/v1/nodes/{self._configuration.name}/status", {"status": node["status"]}, STRATEGIC)

    def _renew(self) -> None:
        name = self._configuration.name
        now = moment(time.time()).replace("Z", f".{time.time_ns() // 1000 % 1_000_000:06}Z")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            self._heartbeat.patch(f"{LEASES}/{name}", {"spec": spec})
        except Refused as refused:
            if refused.status != 404:
                raise
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
            self._heartbeat.create(LEASES, lease)

    # Its pods

    def _tell(self, uid: str, pod: Object | None) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            worker.tell(pod)
            if pod is None:
                del self._workers[uid]
        elif pod is not None:
            self._workers[uid] = Worker(self._place, pod, self._free_address)
            self._workers[uid].start()

    def _listed(self) -> None:
        """Ends what runs here and is in no list: its object is gone."""
        for folder in (self._place.disk / "pods").glob("*"):
            namespace, name, uid = folder.name.split("_")
            if uid not in self._workers and not (folder / "over").exists():
                metadata = {"namespace": namespace, "name": name, "uid": uid}
                spec: dict[str, Any] = {"containers": []}
                worker = Worker(self._place, {"metadata": metadata, "spec": spec, "status": {}}, self._free_address)
                worker.tell(None)
                worker.start()

    def _free_address(self) -> str:
        """The next one that is free, so that one comes back as late as possible."""
        with self._lock:
            file = self._place.disk / "last address"
            last = int(file.read_text()) if file.exists() else FIRST_POD - 1
            used = {worker.sandbox.address for worker in self._workers.values()}
            network = self._configuration.address.rpartition(".")[0]
            count = LAST_POD - FIRST_POD + 1
            numbers = ((last + step - FIRST_POD) % count + FIRST_POD for step in range(1, count + 1))
            number = next(number for number in numbers if f"{network}.{number}" not in used)
            file.write_text(str(number))
            return f"{network}.{number}"


def main() -> None:
    Kubelet(Configuration(**json.loads(Path(sys.argv[1]).read_text()))).run()


if __name__ == "__main__":
    main()
