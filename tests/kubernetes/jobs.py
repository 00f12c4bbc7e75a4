"""Jobs of users on the test cluster: their resources, their states, and the records of their ranks.

Pods see a folder of this machine, in which ranks record their state; only the tests need it, not the job.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from tests.faults.harness import JOB
from tests.integration.processes import wait_until
from tests.integration.training import JOBS, LONG, Outcome
from tests.kubernetes.api import Object, Refused
from tests.kubernetes.cluster import Cluster
from tests.matrix.cells import RANKS, Cell
from tests.matrix.results import Result
from tests.matrix.run import Finished, compare, last_step, log_of, undisturbed
from tests.model.validate import Validator
from understudy.core.events import Event
from understudy.links.messages import decode_trusted
from understudy.orchestrator import views
from understudy.orchestrator.settings import Settings

GROUP = "understudy.dev"
API = f"{GROUP}/v1alpha1"
KIND = "UnderstudyJob"
PACE = 0.05  # seconds of a step of a job that goes on, so that there are not too many of them
GPUS = 4  # of a pod: all that a node has, so that no two pods of a job are on one


class KubernetesJob:
    def __init__(
        self,
        cluster: Cluster,
        *,
        pods: int = 4,
        spares: int = 1,
        name: str = "job",
        script: str = "",
        spec: Object | None = None,
        environment: dict[str, str] | None = None,
        source: str = "",
        pod: Object | None = None,
    ) -> None:
        """Prepare a job of `script` and its arguments; by default `spread.py`, or the text in `source`. `spec`, `pod`: additional fields of
        the resource, and of its template of pods.
        """
        self.cluster, self.name, self.pods, self.spares = cluster, name, pods, spares
        self.out = cluster.folder / f"{cluster.namespace}-{name}"
        self.out.mkdir()
        if source:
            (self.out / "script.py").write_text(source)
            script = str(self.out / "script.py")
        trains = (script or f"{JOBS / 'spread.py'} {self.out}").split()
        given = {"OMP_NUM_THREADS": "1", **(environment or {})}
        container = {
            "name": "trainer",
            "image": "none",
            "command": self.command(trains),
            "env": [{"name": key, "value": value} for key, value in given.items()],
            "resources": {"limits": {"nvidia.com/gpu": str(GPUS)}},
            "volumeMounts": [{"name": "out", "mountPath": str(self.out)}],
        }
        volume = {"name": "out", "hostPath": {"path": str(self.out)}}
        template = {"spec": {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 60, **(pod or {})}}
        resource = {"pods": pods, "spares": {"pods": spares}, "drill": {"at": 0}, "template": template, **(spec or {})}
        cluster.apply({"apiVersion": API, "kind": KIND, "metadata": {"name": name}, "spec": resource})

    def command(self, trains: list[str]) -> list[str]:
        """Return the command of a pod. `trains`: the script and its arguments."""
        return ["understudy", "run", "--run-dir", "/tmp/run", *trains]

    # Observations

    def resource(self) -> Object:
        return self.cluster.get(KIND, self.name, API)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.resource().get("status") or {})

    def pod_names(self, role: str = "") -> list[str]:
        selector = f"{GROUP}/job={self.name}" + (f",{GROUP}/role={role}" if role else "")
        return sorted(pod["metadata"]["name"] for pod in self.cluster.all_of("Pod", labelSelector=selector))

    def pod_of(self, rank: int) -> str:
        """The pod that has this rank, by its label."""
        found = self.cluster.all_of("Pod", labelSelector=f"{GROUP}/job={self.name},{GROUP}/rank={rank}")
        return found[0]["metadata"]["name"] if len(found) == 1 else ""

    def node_of(self, rank: int) -> str:
        """The cluster's node on which that is, when the controller has labelled a pod with it."""
        self._wait(lambda: self.pod_of(rank), f"the pod of rank {rank}")
        return str(self.cluster.get("Pod", self.pod_of(rank))["spec"]["nodeName"])

    @property
    def output(self) -> str:
        """Of all its pods that can be read."""
        logs = []
        for pod in self.pod_names():
            logs.append(f"--- {pod}\n{self.cluster.log(pod)}")
        return "\n".join(logs)

    def wait_until(self, condition: Any, what: str) -> None:
        def there() -> bool:
            phase = self.status.get("phase")
            assert phase not in ("Complete", "Failed"), f"{phase} before {what}\n{self.status}\n{self.output}"
            return bool(condition())

        self._wait(there, what)

    def _wait(self, condition: Any, what: str) -> None:
        try:
            wait_until(condition, what, LONG)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.status, indent=1)}\n{self.output}") from None

    def waits_without_server(self, condition: Any, what: str) -> None:
        wait_until(condition, what, LONG)

    def wait_for(self, marker: str) -> None:
        self.wait_until((self.out / f"marker {marker}").exists, marker)

    def let(self, name: str = "let go") -> None:
        (self.out / name).touch()

    def leader(self) -> str:
        """Return the pod of the orchestrator that leads; "" if none does."""
        with suppress(Refused):
            holder = self.cluster.get("Lease", f"{self.name}-orchestrator", "coordination.k8s.io/v1")["spec"]["holderIdentity"]
            return f"{self.name}-orchestrator-{holder.partition(' ')[0]}" if holder else ""
        return ""

    def trains(self) -> None:
        """Every rank has committed a step."""
        self.wait_until(lambda: self.status.get("phase") == "Training" and self.status.get("step", 0) > 0, "the first step")

    def steps(self) -> int:
        """The last one that every rank has logged."""
        logs = [log_of(self.out / f"log-{rank}.txt") for rank in range(RANKS)]
        return min(last_step({0: log}) for log in logs)

    def goes_on(self, steps: int = 3) -> None:
        now = self.steps()
        self.wait_until(lambda: self.steps() > now + steps, f"step {now + steps}")

    def condition(self, kind: str = "CreationFailed") -> Object:
        """Of its resource; with empty texts if there is none."""
        return next(
            (each for each in self.status.get("conditions") or [] if each["type"] == kind), {"status": "", "reason": "", "message": ""}
        )

    def events(self) -> list[tuple[str, str]]:
        """Type and reason of each of its resource."""
        uid = self.resource()["metadata"]["uid"]
        found = self.cluster.all_of("Event", fieldSelector=f"involvedObject.uid={uid}")
        return [(each["type"], each["reason"]) for each in found]

    # Its end

    def ends(self, phase: str = "Complete") -> Outcome:
        self._wait(lambda: self.status.get("phase") in ("Complete", "Failed"), "the end of the job")
        status = self.status
        assert status["phase"] == phase, f"{json.dumps(status, indent=1)}\n{self.output}"
        return Outcome(int(status["exitCode"]), self.output, self.out)

    def recorded(self) -> tuple[Settings, list[tuple[float, Event]]]:
        """Its journal, from the objects of the cluster that have it."""
        parts = self.cluster.all_of("ConfigMap", labelSelector=f"{GROUP}/log={self.name}")
        ordered = sorted(parts, key=lambda part: int(part["metadata"]["labels"][f"{GROUP}/number"]))
        settings, events = None, []
        for entry in (entry for part in ordered for entry in json.loads(part["data"]["entries"])):
            kind, _, content = entry.partition(" ")
            if kind == "begun":
                settings = Settings.from_json(json.loads(content)["settings"])
            elif kind == "event":
                now, _, text = content.partition(" ")
                event, _ = decode_trusted(text)
                assert isinstance(event, Event)
                events.append((float(now), event))
        assert settings is not None
        return settings, events

    def incidents(self, killed: bool = True) -> list[dict[str, Any]]:
        """Return the incidents in its journal, which is compared with the model of the protocol. `killed`: as `Validator` has it."""
        settings, events = self.recorded()
        validator = Validator(settings, killed=killed)
        validator.run(events)
        return [dict(incident) for incident in views.report(validator.machine)["incidents"]]

    def delete(self) -> None:
        self.cluster.delete(KIND, self.name, API)

    def nothing_is_left(self) -> None:
        """After its deletion: no object of its, no process."""
        pods = self.pod_names()
        self.delete()
        self._wait(lambda: not self.cluster.has(KIND, self.name, API), "the end of the resource")
        kinds = [("Pod", "v1"), ("ConfigMap", "v1"), ("Secret", "v1"), ("Service", "v1"), ("ServiceAccount", "v1")]
        kinds += [("Lease", "coordination.k8s.io/v1"), ("RoleBinding", "rbac.authorization.k8s.io/v1")]
        kinds += [("PodDisruptionBudget", "policy/v1beta1"), ("NetworkPolicy", "networking.k8s.io/v1")]
        for kind, api in kinds:
            wait_until(lambda kind=kind, api=api: not self._left(kind, api), f"no {kind}", LONG)  # type: ignore[misc]
        binding = f"understudy:{self.cluster.namespace}:{self.name}"
        bindings = self.cluster.all_of("ClusterRoleBinding", "rbac.authorization.k8s.io/v1")
        assert binding not in [each["metadata"]["name"] for each in bindings]
        for pod in pods:
            wait_until(lambda pod=pod: not self.cluster.processes(pod), f"no process of {pod}", LONG)  # type: ignore[misc]

    def _left(self, kind: str, api: str) -> list[str]:
        return [found["metadata"]["name"] for found in self.cluster.all_of(kind, api) if found["metadata"]["name"].startswith(self.name)]


class Steady(KubernetesJob):
    """A job that trains until a stop is requested, in one of the ways of the matrix, and logs the state of its ranks after every step."""

    def __init__(self, cluster: Cluster, *, mode: str = "ddp", name: str = "job", **options: Any) -> None:
        self.mode = mode
        out = cluster.folder / f"{cluster.namespace}-{name}"
        words = f"--out {out} --mode {mode} --states --steps {1 << 40} --pace {PACE} --stop {out / 'stop'}"
        super().__init__(cluster, name=name, script=f"{JOB} {words}", **options)

    def ends_as_undisturbed(self) -> list[dict[str, Any]]:
        """Gives its incidents."""
        self.let("stop")
        self.ends()
        logs = {rank: log_of(self.out / f"log-{rank}.txt") for rank in range(RANKS)}
        result = Result(Cell(self.mode, "kubernetes", "kubernetes"))
        result.steps = (0, last_step(logs))
        reference = undisturbed(self.mode, result.steps[1])
        compare(Finished([result], logs, result.steps[1]), reference)
        assert not result.wrong, result.wrong
        return self.incidents()


def python(*words: str) -> list[str]:
    return [sys.executable, *words]
