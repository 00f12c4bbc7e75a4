"""metrics.md: the metrics of `understudy.orchestrator.metrics`, collected from an orchestrator without jobs and nodes, and those of the
rail agent (`understudy.network.metrics`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.core import Metric
from scripts.reference.markdown import code, escape, paragraphs, table

from understudy.common.rail_state import RailState
from understudy.network.metrics import RailMetrics
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.metrics import Metrics

ABOUT = """
The metrics that an orchestrator serves for Prometheus at [`GET /metrics`](http.md#get-metrics). The controller for Kubernetes
(`--metrics-port`) serves only the standard metrics of a Python process. A *service* is an orchestrator that was started with
`understudy orchestrator`.
"""
ABOUT_RAILS = """
The metrics that the agent of [rails](../network/rails.md) writes into a file (`understudy network rails --metrics`). A path is one rail to
one peer.
"""


def metrics() -> list[Metric]:
    journal = SimpleNamespace(waiting=lambda: 0, trouble="")
    jobs = SimpleNamespace(all=list[Any], aside=(), journal=journal)
    cluster = SimpleNamespace(nodes={}, waiting={})
    return list(Metrics(cast(Jobs, jobs), cast(Cluster, cluster)).collect())


def rail_metrics() -> list[Metric]:
    return list(RailMetrics(RailState("", 0, 0.0, True, (), (), (), (), 0, 0, 0)).collect())


def name_of(metric: Metric) -> str:
    """As Prometheus has it."""
    return metric.name + "_total" * (metric.type == "counter")


def pages() -> dict[str, str]:
    lines = ["# Metrics", "", *paragraphs(ABOUT), "", *_table(metrics()), "", "## Rails", "", *paragraphs(ABOUT_RAILS), ""]
    return {"metrics.md": "\n".join([*lines, *_table(rail_metrics())])}


def _table(found: list[Metric]) -> list[str]:
    rows = ([code(name_of(one)), one.type, ", ".join(map(code, _labels(one))), escape(one.documentation)] for one in found)
    return table(["metric", "type", "labels", "meaning"], rows)


def _labels(metric: Any) -> tuple[str, ...]:
    """The client library has no other way to read them."""
    return tuple(metric._labelnames)
