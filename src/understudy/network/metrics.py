"""Write the state of the rails as metrics, into a file for the textfile collector of Prometheus' node exporter.

The rail agent serves no HTTP: it listens on the rails only, and there only for probes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from understudy.common.rail_state import RailState


class RailMetrics(Collector):
    def __init__(self, state: RailState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of one state. Durations are in seconds."""
        rail, path = ["rail"], ["peer", "rail"]
        link = GaugeMetricFamily("understudy_rail_link", "Whether the link of this rail is up.", labels=rail)
        for one in self._state.rails:
            link.add_metric([one.device], float(one.link == "up"))
        up = GaugeMetricFamily("understudy_rail_path_up", "Whether the next hop on this rail is in use.", labels=path)
        rtt = GaugeMetricFamily("understudy_rail_path_rtt_seconds", "Round-trip time of the last answered probe.", labels=path)
        sent = CounterMetricFamily("understudy_rail_path_probes", "Probes sent.", labels=path)
        lost = CounterMetricFamily("understudy_rail_path_probes_lost", "Probes without an answer in time.", labels=path)
        withdrawals = CounterMetricFamily("understudy_rail_path_failovers", "Withdrawals of the next hop.", labels=path)
        for each in self._state.paths:
            labels = [each.peer, each.device]
            up.add_metric(labels, float(each.up))
            sent.add_metric(labels, each.sent)
            lost.add_metric(labels, each.lost)
            withdrawals.add_metric(labels, each.withdrawals)
            if each.rtt is not None:
                rtt.add_metric(labels, each.rtt)
        ignored = CounterMetricFamily("understudy_rail_packets_ignored", "Packets that were ignored.", labels=["reason"])
        for reason in ("malformed", "unauthenticated", "unexpected"):
            ignored.add_metric([reason], getattr(self._state, reason))
        yield from (link, up, rtt, sent, lost, withdrawals, ignored)


def write(path: Path, state: RailState) -> None:
    """Replace the file. Raises `OSError`."""
    registry = CollectorRegistry()
    registry.register(RailMetrics(state))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_to_textfile(str(path), registry)
