"""A JobSet of Kubernetes, as Kubeflow Trainer makes it from a TrainJob (`deploy/kubernetes/trainer`), from its pods' environment.

Pods of the replicated job `node` have ranks, those of `spare` have only spares. The API server is not used: the Job controller restarts a
failed pod under the same host name, and it joins again as the same node. Three orchestrators run in the first three pods, as without any
scheduler. The cluster's evidence is not known here; only the orchestrators of an UnderstudyJob get it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import Allocation, ClaimedNode, NodeSeen, Place, Running, Scheduler, SchedulerFailed, Work
from understudy.schedulers.kubernetes.names import PORT

NAME = "jobset"
SET_VARIABLE = "UNDERSTUDY_JOBSET"  # the set's name
JOB_VARIABLE = "UNDERSTUDY_JOBSET_JOB"  # the job of the set to which this pod belongs
SPARES_VARIABLE = "UNDERSTUDY_SPARE_NODES"  # number of pods with only spares
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
NODES_VARIABLE = "PET_NNODES"
TRAINS, WAITS = "node", "spare"  # names of the jobs
ORCHESTRATORS = 3


def place_of(environment: Mapping[str, str]) -> Place | None:
    """Return the place of this pod; None outside of a JobSet. Raises `ValueError` if the environment is incomplete."""
    name = environment.get(SET_VARIABLE, "")
    if not name:
        return None
    kind, index = environment.get(JOB_VARIABLE, ""), environment.get(INDEX_VARIABLE, "")
    count, spares = environment.get(NODES_VARIABLE, ""), environment.get(SPARES_VARIABLE, "0")
    if kind not in (TRAINS, WAITS):
        raise ValueError(kubernetes_jobs.WRONG_JOBSET_JOB(variable=JOB_VARIABLE, value=kind, jobset=name, trains=TRAINS, waits=WAITS))
    for variable, value in ((INDEX_VARIABLE, index), (NODES_VARIABLE, count), (SPARES_VARIABLE, spares)):
        if not (value.isascii() and value.isdecimal()):
            raise ValueError(kubernetes_jobs.NOT_A_NUMBER(variable=variable, value=value))
    hosts = [f"{name}-{TRAINS}-0-{number}" for number in range(int(count))]
    hosts += [f"{name}-{WAITS}-0-{number}" for number in range(int(spares))]
    number = int(index) + (int(count) if kind == WAITS else 0)
    if number >= len(hosts):
        variables = {"nodes_variable": NODES_VARIABLE, "nodes": count, "spares_variable": SPARES_VARIABLE, "spares": spares}
        raise ValueError(kubernetes_jobs.BEYOND_THE_SET(index=index, job=kind, **variables))
    leading = min(ORCHESTRATORS, int(count))
    addresses = tuple(f"{host}.{name}" for host in hosts[:leading])
    return Place(NAME, name, tuple(hosts), number, addresses, (PORT,) * leading)


class JobSetAllocation(Allocation):
    """The allocation of a JobSet; only its place is known."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def share(self, secret: str) -> None:
        raise SchedulerFailed(kubernetes_jobs.JOBSET_SECRET())

    def shared(self, seconds: float) -> str:
        raise SchedulerFailed(kubernetes_jobs.JOBSET_SECRET())

    def look(self) -> Sequence[NodeSeen]:
        return ()

    def record(self, text: str) -> None:
        """Do nothing: there is no place for the text."""

    def release(self, nodes: Collection[str], text: str) -> Sequence[str]:
        return ()

    def drain(self, nodes: Collection[str], reason: str) -> None:
        raise SchedulerFailed(kubernetes_jobs.JOBSET_DRAINS_NOT())

    def claim(self, number: int, work: Work, avoid: Collection[str], near: str, text: str) -> None:
        raise SchedulerFailed(kubernetes_jobs.JOBSET_CLAIMS_NOT())

    def claims(self) -> Mapping[int, ClaimedNode]:
        return {}

    def give_back(self, number: int) -> None:
        """Do nothing: there are no claims."""

    def give_all_back(self) -> None:
        """Do nothing: there are no claims."""

    def record_claim(self, number: int, text: str) -> None:
        """Do nothing: there are no claims."""

    def finish(self, missing: Collection[str]) -> None:
        """Do nothing: the JobSet controller sees how the pods of `node` have ended."""


class JobSetScheduler(Scheduler):
    """Detects JobSets; it cannot start anything."""

    name = NAME

    def submit(self, job: Work) -> Running:
        raise ValueError(kubernetes_jobs.JOBSET_STARTS(name=job.name))

    def add_node(self, node: Work) -> Running:
        raise ValueError(kubernetes_jobs.JOBSET_STARTS(name=node.name))

    def drain_node(self, name: str) -> None:
        raise KeyError(name)

    def status(self) -> Mapping[str, str]:
        return {}

    def allocation(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
        place = place_of(environment)
        return JobSetAllocation(place) if place is not None else None
