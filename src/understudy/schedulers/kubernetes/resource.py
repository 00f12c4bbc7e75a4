"""A job as described by its resource.

The schema of the API server (`deploy/kubernetes/crd.yaml`) checks the same; it is checked again here because a cluster may have another
version of it installed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from understudy.core.model import JobSpec, Timeouts, Unproven
from understudy.messages import kubernetes_jobs
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.names import JOB, KIND, PORT, VERSION

OVER = ("Complete", "Failed")  # of `status.phase`


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Floating(_Part):
    pods: int = Field(default=0, ge=0, le=1000)
    priority_class_name: str = ""


class Spares(_Part):
    pods: int = Field(default=1, ge=0, le=10_000)
    prepared: int = Field(default=0, ge=0)
    floating: Floating = Floating()


class Drill(_Part):
    at: int = Field(default=1, ge=0)
    required: bool = False


class Times(_Part):
    """Time limits in seconds; None: the default of `Timeouts`."""

    heartbeat: float | None = Field(default=None, gt=0)
    node_lost: float | None = Field(default=None, gt=0)
    hang: float | None = Field(default=None, gt=0)
    alone: float | None = Field(default=None, gt=0)
    set_up: float | None = Field(default=None, gt=0)
    stop: float | None = Field(default=None, gt=0)


class Condition(_Part):
    """A condition of a node of the cluster: a pattern of its type, and the status that is evidence against the node."""

    type: str
    status: str = "True"


class Evidence(_Part):
    """The evidence that counts against a node. Shell patterns; those of taints: for KEY, KEY=VALUE or KEY=VALUE:EFFECT."""

    cordon: bool = True
    taints: tuple[str, ...] = ("*:NoSchedule", "*:NoExecute")
    ignored_taints: tuple[str, ...] = ("node.kubernetes.io/unschedulable*",)  # a cordon, which `cordon` covers
    conditions: tuple[Condition, ...] = (
        Condition(type="Ready", status="False"),
        Condition(type="Ready", status="Unknown"),
        Condition(type="*Gpu*"),
        Condition(type="*GPU*"),
    )
    device_taints: bool = True


class Spec(_Part):
    pods: int = Field(ge=1, le=10_000)
    ranks_per_pod: int = Field(default=1, ge=1, le=1024)
    spares: Spares = Spares()
    orchestrators: int = Field(default=2, ge=1, le=5)
    port: int = Field(default=PORT, ge=1024, le=65535)
    policy: str = Field(default="", max_length=1 << 17)
    max_restarts: int = Field(default=3, ge=0)
    drill: Drill = Drill()
    unproven: Unproven = Unproven.CONTINUE
    timeouts: Times = Times()
    evidence: Evidence = Evidence()
    topology_key: str = ""  # claimed pods prefer nodes where this label has the value of the ranks' first node
    keep_together: tuple[str, ...] = ()  # groups of ranks that must stay within one NVLink domain
    tls_secret_name: str = ""
    template: Object

    def total(self) -> int:
        return self.pods + self.spares.pods


def owner_reference(group: str, name: str, uid: str) -> Object:
    return {
        "apiVersion": f"{group}/{VERSION}",
        "kind": KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned(what: Object, uid: str) -> bool:
    """Return whether an object belongs to the job with this uid."""
    return any(each.get("uid") == uid for each in what["metadata"].get("ownerReferences") or [])


def _look_at(template: Object) -> None:
    containers = (template.get("spec") or {}).get("containers")
    if not isinstance(containers, list) or not containers or not all(isinstance(each, dict) for each in containers):
        raise ValueError(kubernetes_jobs.NO_CONTAINER())


@dataclass(frozen=True)
class Job:
    """A job's resource, as it was read."""

    name: str
    namespace: str
    uid: str
    group: str
    deleted: bool
    spec: Spec
    status: Object
    raw: Object

    @staticmethod
    def of(raw: Object) -> Job:
        """Parse a resource. Raises `ValueError` that names the mistake."""
        metadata = raw["metadata"]
        if not JOB.fullmatch(metadata["name"]):
            raise ValueError(kubernetes_jobs.BAD_NAME())
        try:
            spec = Spec.model_validate(raw.get("spec") or {})
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(kubernetes_jobs.BAD_FIELD(field=".".join(map(str, first["loc"])), problem=first["msg"])) from None
        if spec.spares.prepared > spec.spares.pods * spec.ranks_per_pod:
            raise ValueError(kubernetes_jobs.TOO_MANY_PREPARED(prepared=spec.spares.prepared))
        if spec.drill.required and not (spec.drill.at and spec.spares.pods):
            raise ValueError(kubernetes_jobs.NO_DRILLS())
        _look_at(spec.template)
        found = Job(
            metadata["name"],
            metadata["namespace"],
            metadata["uid"],
            raw["apiVersion"].rpartition("/")[0],
            "deletionTimestamp" in metadata,
            spec,
            raw.get("status") or {},
            raw,
        )
        found.timeouts()
        return found

    @property
    def over(self) -> bool:
        return self.status.get("phase") in OVER

    def owner(self) -> Object:
        """Return the entry of `metadata.ownerReferences` for objects that are deleted with the job."""
        return owner_reference(self.group, self.name, self.uid)

    def job_spec(self) -> JobSpec:
        spec = self.spec
        return JobSpec(
            job=self.name,
            world_size=spec.pods * spec.ranks_per_pod,
            workers_per_node=spec.ranks_per_pod,
            nodes=spec.pods,
            spares=spec.spares.pods * spec.ranks_per_pod,
            spare_nodes=spec.spares.pods,
            replaces_nodes=True,
            floating=spec.spares.floating.pods,
            max_restarts=spec.max_restarts,
            prepared=spec.spares.prepared,
            drill_at=spec.drill.at if spec.spares.pods else 0,
            require_drill=spec.drill.required,
            unproven=spec.unproven,
            keep_together=spec.keep_together,
        )

    def timeouts(self) -> Timeouts:
        """Return the timeouts. Raises `ValueError`."""
        given, default = self.spec.timeouts, Timeouts()
        first = given.set_up or max(default.hang_first, given.hang or 0.0)
        try:
            return Timeouts(
                hang_floor=given.hang or default.hang_floor,
                hang_factor=1.0 if given.hang else default.hang_factor,
                hang_first=first,
                alone=given.alone or default.alone,
                quiesce=min(default.quiesce, first),
                stop=given.stop or default.stop,
                heartbeat=given.heartbeat or default.heartbeat,
                node_lost=given.node_lost or default.node_lost,
            )
        except ValueError as error:
            raise ValueError(kubernetes_jobs.BAD_TIMEOUTS(problem=str(error))) from error

    def settings(self) -> str:
        """Return the settings of an orchestrator, as JSON (`orchestrator.settings`)."""
        made: dict[str, Any] = {"spec": asdict(self.job_spec()), "timeouts": asdict(self.timeouts()), "policy": self.spec.policy}
        return json.dumps(made)
