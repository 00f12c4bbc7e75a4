"""Metrics for Prometheus at `/metrics`: the current state of jobs and nodes, and sums over incidents since the start of a job.

Names follow Prometheus' conventions: a unit at the end, `_total` for counters. The label of a job is `job_name`, because Prometheus uses
`job` for the scraped target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from understudy.core.model import Grade, Incident
from understudy.orchestrator import views
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs, ServedJob

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics(Collector):
    def __init__(self, jobs: Jobs, cluster: Cluster | None) -> None:
        self._jobs = jobs
        self._cluster = cluster
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        yield from _of_jobs(self._jobs.all(), self._cluster.waiting if self._cluster is not None else {}, self._jobs.aside)
        yield GaugeMetricFamily(
            "understudy_journal_waiting", "Journal entries that are not written yet.", value=self._jobs.journal.waiting()
        )
        trouble = "1 while the journal cannot be written."
        yield GaugeMetricFamily("understudy_journal_trouble", trouble, value=1 if self._jobs.journal.trouble else 0)
        if self._cluster is not None:
            yield from _of_nodes(self._cluster)


def _of_jobs(jobs: list[ServedJob], waiting: Mapping[str, str], aside: Iterable[str]) -> Iterator[Metric]:
    states = GaugeMetricFamily("understudy_jobs", "Jobs by state, including those that have ended.", labels=["state"])
    state = GaugeMetricFamily("understudy_job_state", "1 for the current state of the job, as in status.", labels=["job_name", "state"])
    steps = GaugeMetricFamily("understudy_job_step", "The last step that every rank has committed.", labels=["job_name"])
    generations = GaugeMetricFamily(
        "understudy_job_generation", "How often the assignment of ranks to workers has changed.", labels=["job_name"]
    )
    workers = GaugeMetricFamily(
        "understudy_job_workers", "Workers by role (`rank` or `spare`) and state.", labels=["job_name", "role", "state"]
    )
    incidents = CounterMetricFamily(
        "understudy_incidents", "Closed incidents, by cause and by their grade when they closed.", labels=["job_name", "cause", "grade"]
    )
    unproven = GaugeMetricFamily(
        "understudy_job_unproven_incidents",
        "Closed incidents that are unproven now; a drill that passes later raises a grade.",
        labels=["job_name"],
    )
    tainted = GaugeMetricFamily(
        "understudy_job_tainted_nodes", "Tainted nodes of the job, which get no new ranks or spares.", labels=["job_name"]
    )
    seconds = CounterMetricFamily(
        "understudy_incident_seconds",
        "Seconds from the fault to the next step that every rank committed, summed over closed incidents.",
        labels=["job_name"],
    )
    moved = CounterMetricFamily("understudy_state_moved_bytes", "Bytes of state that newcomers received from donors.", labels=["job_name"])
    drills = GaugeMetricFamily("understudy_job_drills", "Drills by verdict; the last 200.", labels=["job_name", "verdict"])
    paused = GaugeMetricFamily(
        "understudy_job_drill_pause_seconds", "Seconds that the rank of the last drill spent on it.", labels=["job_name"]
    )
    proven = GaugeMetricFamily(
        "understudy_job_proven_ranks",
        "Drilled ranks: a drill of the rank, or of one with its role, has passed. Not the grade `proven` of incidents.",
        labels=["job_name"],
    )
    refused = CounterMetricFamily(
        "understudy_refused",
        "Events that were ignored, by type and reason: late, repeated, or of an unknown sender.",
        labels=["job_name", "event", "why"],
    )
    found: Counter[str] = Counter()
    for job in jobs:
        status = views.status(job.service.machine, job.service.pages)
        now = "waiting" if job.name in waiting else status["state"]
        found[now] += 1
        state.add_metric([job.name, now], 1)
        steps.add_metric([job.name], status["step"])
        generations.add_metric([job.name], status["generation"])
        tainted.add_metric([job.name], len(status["taints"]))
        places = Counter(("rank", rank["state"]) for rank in status["ranks"]) + Counter(("spare", s["state"]) for s in status["spares"])
        for (role, what), count in places.items():
            workers.add_metric([job.name, role, what], count)
        over = [incident for incident in job.service.machine.incidents() if incident.seconds >= 0]
        for (cause, grade), count in Counter((incident.cause, _first_grade(incident)) for incident in over).items():
            incidents.add_metric([job.name, cause, grade], count)
        unproven.add_metric([job.name], sum(incident.grade is Grade.UNPROVEN for incident in over))
        seconds.add_metric([job.name], sum(incident.seconds for incident in over))
        moved.add_metric([job.name], sum(incident.bytes_moved for incident in over))
        for verdict, count in Counter(str(drill.verdict) for drill in job.service.machine.state.drills).items():
            drills.add_metric([job.name, verdict], count)
        paused.add_metric([job.name], next((drill.pause for drill in reversed(job.service.machine.state.drills)), 0.0))
        proven.add_metric([job.name], sum(rank["proven"] is not None for rank in status["ranks"]))
        for (event, why), count in job.service.machine.state.refused.items():
            refused.add_metric([job.name, event, why], count)
    for name in aside:
        found["aside"] += 1
        state.add_metric([name, "aside"], 1)
    for name, count in found.items():
        states.add_metric([name], count)
    yield from (states, state, steps, generations, workers, tainted, incidents, unproven, seconds, moved, drills, paused, proven, refused)


def _of_nodes(cluster: Cluster) -> Iterator[Metric]:
    nodes = GaugeMetricFamily("understudy_nodes", "Nodes of a service: `here` (connected) or `away`.", labels=["state"])
    slots = GaugeMetricFamily("understudy_slots", "Slots of connected nodes of a service: `free` or `used`.", labels=["state"])
    waiting = GaugeMetricFamily("understudy_waiting_jobs", "Jobs of a service that wait for slots.")
    here = [node for node in cluster.nodes.values() if node.link is not None]
    nodes.add_metric(["here"], len(here))
    nodes.add_metric(["away"], len(cluster.nodes) - len(here))
    slots.add_metric(["free"], sum(node.free() for node in here))
    slots.add_metric(["used"], sum(node.hello.slots - node.free() for node in here))
    waiting.add_metric([], len(cluster.waiting))
    yield from (nodes, slots, waiting)


def _first_grade(incident: Incident) -> str:
    """Return the grade of the incident when it ended: a counter must not fall when a drill raises the grade."""
    return str(Grade.UNPROVEN if incident.raised else incident.grade or "")
