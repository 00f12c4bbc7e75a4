"""Judge metrics by rules on a node, about this node only: its own exporter's page, or a server's series about it.

The node is recognized by its names: those of the host and, where the host's name is the node's, that of its agent. A page without a
configured `node` is this node's. Evidence against another node is left out: the agent there looks, too. Every node queries the server, so
keep queries small and rare.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from understudy.detectors.base import Evidence, JobView, NodeDetector
from understudy.detectors.configuration import Name
from understudy.detectors.prometheus import Prometheus, PrometheusSettings
from understudy.detectors.prometheus_answers import AT_ONCE

MARGIN = 10.0  # seconds in addition to the limits of its requests
MOST = 100  # pieces of evidence, the most severe first: an agent leaves out a detector that reports more


class Rules(PrometheusSettings):
    name: Name


class PrometheusHere(NodeDetector):
    def __init__(self, rules: Rules, names: Sequence[str], now: Callable[[], float] = time.time) -> None:
        """Prepare the rules; nothing is queried yet. `names` of this node; the first one has its own pages. `now` returns unix
        time.
        """
        self.name = f"prometheus:{rules.name}"
        self.every = rules.every
        servers = [*([rules.server] if rules.server is not None else []), *rules.exporters]
        requests = len(rules.exporters) + sum(rule.query is not None for rule in rules.rules)
        self.limit = math.ceil(requests / AT_ONCE) * max((server.limit for server in servers), default=0.0) + MARGIN
        own = {"node": names[0]}
        pages = tuple(page if page.node else page.model_copy(update=own) for page in rules.exporters)
        self._prometheus = Prometheus(rules.model_copy(update={"exporters": pages}))
        self._names = {str(number): name for number, name in enumerate(names)}
        self._now = now

    def look(self) -> list[Evidence]:
        found = self._prometheus.look(JobView(self._now(), {}, nodes=self._names))
        return [replace(one, detector=self.name, name="") for one in found[:MOST]]
