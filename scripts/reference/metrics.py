"""metrics.md: the metrics of `understudy.orchestrator.metrics`, collected from an orchestrator without jobs and nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.core import Metric
from scripts.reference.markdown import code, escape, paragraphs, table

from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.metrics import Metrics

ABOUT = """
The metrics that an orchestrator serves for Prometheus at [`GET /metrics`](http.md#get-metrics). The controller for Kubernetes
(`--metrics-port`) serves only the standard metrics of a Python process. A *service* is an orchestrator that was started with
`understudy orchestrator`.
"""


def metrics() -> list[Metric]:
    journal = SimpleNamespace(waiting=lambda: 0, trouble="")
    jobs = SimpleNamespace(all=list[Any], aside=(), journal=journal)
    cluster = SimpleNamespace(nodes={}, waiting={})
    return list(Metrics(cast(Jobs, jobs), cast(Cluster, cluster)).collect())


def name_of(metric: Metric) -> str:
    """As Prometheus has it."""
    return metric.name + "_total" * (metric.type == "counter")


def pages() -> dict[str, str]:
    rows = ([code(name_of(one)), one.type, ", ".join(map(code, _labels(one))), escape(one.documentation)] for one in metrics())
    lines = [
        "# Metrics",
        "",
        *paragraphs(ABOUT),
        "",
        *table(["metric", "type", "labels", "meaning"], rows),
    ]
    return {"metrics.md": "\n".join(lines)}


def _labels(metric: Any) -> tuple[str, ...]:
    """The client library has no other way to read them."""
    return tuple(metric._labelnames)
