"""Measure how long a job on Kubernetes needs to train again when a node loses its power, or is drained: ours, and Kubernetes' own way.

    python benchmarks/on_kubernetes.py --times 5 --json kubernetes.json

The cluster is the one of the tests (`tests/kubernetes/cluster.py`: a real kube-apiserver, scheduler and controller-manager, six nodes with
stand-ins for the kubelet, each in a simulated host that can be switched off; needs root and the binaries that are listed there). Four pods
train (`peers/training.py`, one rank each), in turns:

    spare pod      an UnderstudyJob with a spare pod
    floating spare an UnderstudyJob without: the fifth pod is requested from Kubernetes, where a node is idle
    new pods       torchrun in four pods, with a checkpoint each `--every` steps: Kubernetes notices the node and evicts its pod; then all
                   pods are recreated, as by the failure policy of a JobSet. (That a Job replaces only the one pod is not enough: torchrun
                   counts the lost agent into its next round, and fails.) This script does so in place of JobSet's controller, at once

    noticed        from the power loss to: the node is lost (by our journal); its condition Ready is Unknown (Kubernetes)
    trains again   from the power loss to a step, committed by every rank, that no rank had committed before

and for the planned case (`kubectl drain`): to the taint, the pause, and the rank's new place; of pods that are recreated,
until they train again.

Kubernetes' own way is at its best here: node-monitor-grace-period is 8 s instead of 40, and these pods tolerate an unreachable node for no
time at all, instead of the default of 300 s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recovery import ROOT

sys.path.insert(0, str(ROOT))

from tests.kubernetes.cluster import Cluster, cluster
from tests.kubernetes.control_plane import NODE_GRACE, why_no_resources, why_not
from tests.kubernetes.installation import install
from tests.kubernetes.jobs import GPUS, KubernetesJob
from tests.kubernetes.pods import pod

from cluster_job import LIMIT, RANKS, Figures, Trained, arguments, show, tell, until
from understudy.core.events import Event, NodesLost, NodeTainted
from understudy.core.machine import Machine
from understudy.orchestrator import views

PYTHONPATH = f"{ROOT / 'src'}:{ROOT}:{ROOT / 'benchmarks'}"
OURS = {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
TOLERATION = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
NAME = "plain"


class Ours(Trained):
    def __init__(self, kubernetes: Cluster, model: str, spares: int) -> None:
        out = kubernetes.folder / f"{kubernetes.namespace}-job"
        training = f"--model {model} --steps 1000000 --record {out / 'log'} --folder {out}"
        more = {"spares": {"pods": 0, "floating": {"pods": 1}}} if not spares else {}
        script = f"-m peers.entry_understudy {training}"
        self.job = KubernetesJob(kubernetes, spares=spares, script=script, spec=more, environment=OURS)
        self.kubernetes = kubernetes
        super().__init__(self.job.out)

    def node(self) -> str:
        return self.job.node_of(2)

    def time_of(self, kind: type[Event]) -> float:
        """Return the time of the first event of this kind."""
        found = until(lambda: [now for now, event in self.job.recorded()[1] if isinstance(event, kind)], kind.__name__)
        return float(found[0])

    def incident(self) -> dict[str, Any]:
        """Return its only incident, once it is over."""

        def over() -> Any:
            settings, events = self.job.recorded()
            now_there = Machine(settings.spec, settings.timeouts)
            for now, event in events:
                now_there.handle(event, now)
            found = views.report(now_there)["incidents"]
            return found if found and found[0]["seconds"] is not None else None

        (found,) = until(over, "the end of the incident", 0.2)
        return dict(found)

    def end(self) -> None:
        self.job.nothing_is_left()


class Theirs(Trained):
    """torchrun in pods, all of which are recreated when one of them is lost."""

    def __init__(self, kubernetes: Cluster, model: str, every: int) -> None:
        self.kubernetes = kubernetes
        out = kubernetes.folder / f"{kubernetes.namespace}-{NAME}"
        out.mkdir()
        super().__init__(out)
        self._training = f"--model {model} --steps 1000000 --record {self.log.path} --folder {out} --every {every}"
        service = {"clusterIP": "None", "selector": {"job": NAME}, "publishNotReadyAddresses": True, "ports": [{"port": 29400}]}
        kubernetes.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": service})
        self._names: list[str] = []
        self._attempt = 0
        self.start()

    def start(self) -> None:
        """Create the pods, in place of the existing ones."""
        for name in self._names:
            self.kubernetes.delete("Pod", name, grace=1)
        self._names = [f"{NAME}-{self._attempt}-{number}" for number in range(RANKS)]
        self._attempt += 1
        first = self._names[0]
        torchrun = f"torchrun --nnodes {RANKS} --rdzv-backend c10d --rdzv-endpoint {first}.{NAME}:29400 --rdzv-id {first}"
        words = ["sh", "-c", f"exec {torchrun} --local-addr $ADDRESS -m peers.entry_plain {self._training}"]
        address = {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        environment = [address, *({"name": name, "value": value} for name, value in OURS.items())]
        container = {"env": environment, "volumeMounts": [{"name": "out", "mountPath": str(self.folder)}]}
        spec: dict[str, Any] = {"subdomain": NAME, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        spec |= {"tolerations": [TOLERATION], "volumes": [{"name": "out", "hostPath": {"path": str(self.folder)}}]}
        for name in self._names:
            self.kubernetes.apply(pod(name, words, labels={"job": NAME}, container=container, gpus=GPUS, hostname=name, **spec))

    def pod(self) -> str:
        return self._names[2]

    def node(self) -> str:
        return str(self.kubernetes.get("Pod", self.pod())["spec"]["nodeName"])

    def evicted(self) -> bool:
        """Return whether its pod is being evicted, or has gone."""
        name = self.pod()
        return not self.kubernetes.has("Pod", name) or "deletionTimestamp" in self.kubernetes.get("Pod", name)["metadata"]

    def end(self) -> None:
        """Delete the pods, with the namespace."""


def loses(job: Ours | Theirs) -> dict[str, float]:
    job.trains()
    node, step, moment = job.node(), job.beyond(), time.time()
    job.kubernetes.nodes[node].off()
    if isinstance(job, Ours):
        again = job.again(step)
        noticed = job.time_of(NodesLost)
    else:
        until(lambda: job.kubernetes.operator.condition(node) == "Unknown", "Kubernetes to notice")
        noticed = time.time()
        until(job.evicted, "the eviction")
        job.start()
        again = job.again(step)
    return {"noticed": noticed - moment, "trains again": again - moment}


def leaves(job: Ours | Theirs) -> dict[str, float]:
    job.trains()
    node, step, moment = job.node(), job.beyond(), time.time()
    if isinstance(job, Theirs):
        job.kubernetes.operator.cordon(node)
        job.kubernetes.operator.evict(job.kubernetes.namespace, job.pod())
        job.start()
        return {"trains again": job.again(step) - moment}
    job.kubernetes.operator.drain(node, LIMIT)
    incident, tainted = job.incident(), job.time_of(NodeTainted)
    place = incident["fault_at"] + incident["seconds"] - moment
    return {"taint": tainted - moment, "pause": incident["seconds"], "new place": place}


def main() -> None:
    args = arguments("A node of a job on Kubernetes loses its power, or is drained.", "kubernetes")
    if why := why_not() or why_no_resources():
        raise SystemExit(why)
    ways: dict[str, Callable[[Cluster], dict[str, float]]] = {}

    def way(name: str, make: Callable[[Cluster], Ours | Theirs], measure: Callable[[Ours | Theirs], dict[str, float]]) -> None:
        def run(kubernetes: Cluster) -> dict[str, float]:
            job = make(kubernetes)
            found = measure(job)
            job.end()
            return found

        ways[name] = run

    way("power: spare pod", lambda there: Ours(there, args.model, 1), loses)
    way("power: floating spare", lambda there: Ours(there, args.model, 0), loses)
    way("power: new pods", lambda there: Theirs(there, args.model, args.every), loses)
    way("drained: spare pod", lambda there: Ours(there, args.model, 1), leaves)
    way("drained: new pods", lambda there: Theirs(there, args.model, args.every), leaves)
    found: dict[str, Figures] = {name: {} for name in ways}
    with tempfile.TemporaryDirectory(prefix="understudy-kubernetes-") as folder, cluster(Path(folder) / "c") as kubernetes:
        install(kubernetes)
        for turn in range(args.times):
            for name, run in ways.items():
                kubernetes.begin()
                for row, value in run(kubernetes).items():
                    found[name].setdefault(row, []).append(value)
                kubernetes.end()
                tell(turn, args.times, name, found[name])

    def theirs(name: str, row: str) -> Sequence[float]:
        case, _, ours = name.partition(": ")
        rows = found[f"{case}: new pods"] if ours != "new pods" else {}
        return rows.get("trains again" if row == "new place" else row, [])

    title = f"{args.model} model, 4 ranks; node-monitor-grace-period {NODE_GRACE} s"
    show(title, "new pods / this", found, theirs, args)


if __name__ == "__main__":
    main()
