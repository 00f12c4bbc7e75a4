"""A node of a service: the reports of its agent, the parts placed there, and the evidence against it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from understudy.common.bounds import cut
from understudy.core.placement import Offer
from understudy.core.topology import failure_domain
from understudy.detectors.base import Evidence
from understudy.links.messages import Hello, Part
from understudy.orchestrator.agent_link import AgentLink
from understudy.orchestrator.detection import too_many

SUSPICIONS = 100  # pieces of evidence that are kept for a node
DETAIL = 1000  # bytes of each


@dataclass
class Node:
    hello: Hello  # its agent's last report, with what was placed since then
    link: AgentLink | None  # None: disconnected
    heard: float  # the last message, by the loop's clock
    since: float = 0.0  # when its agent connected, by the same clock
    placed: dict[str, Part] = field(default_factory=dict)  # parts that this orchestrator has placed there, by job
    restarts: dict[str, int] = field(default_factory=dict)  # of parts, by job
    ended: set[str] = field(default_factory=set)  # jobs whose parts this agent was asked to end, because they were late
    suspected: dict[tuple[str, str, str], Evidence] = field(default_factory=dict)  # by detector, kind and part: may still be valid

    def doubt(self, now: float) -> str:
        """Return why no job should be placed here, according to evidence; "" if there is none. `now`: unix time."""
        return next((f"{e.detail} ({e.detector})" for e in self.suspected.values() if not 0 < e.until <= now), "")

    def suspect(self, evidence: Evidence, now: float) -> None:
        """Keep evidence, and drop what has ended. `now`: unix time."""
        key = evidence.detector, evidence.kind, evidence.part
        self.suspected = {other: e for other, e in self.suspected.items() if other != key and not 0 < e.until <= now}
        over = 0 < evidence.until <= now
        if not over and not too_many(evidence.detector, [detector for detector, _, _ in self.suspected], SUSPICIONS):
            self.suspected[key] = replace(evidence, detail=cut(evidence.detail, DETAIL))

    def free(self) -> int:
        return self.hello.slots - sum(part.slots for part in self.hello.parts)

    def offer(self) -> Offer:
        """Return its free slots for a job."""
        hello = self.hello
        return Offer(hello.node, failure_domain(hello.node, hello.domain, hello.labels), self.free())

    def hear(self, hello: Hello, *, started: tuple[Part, ...]) -> None:
        """Take a report of its agent. `started`: parts that the agent may not know of yet."""
        known = {part.job for part in hello.parts}
        self.hello = replace(hello, parts=(*hello.parts, *(part for part in started if part.job not in known)))

    def start(self, part: Part) -> None:
        self.placed[part.job] = part
        self.hello = replace(self.hello, parts=(*self.hello.parts, part))

    def end(self, job: str) -> None:
        """Remove its part of this job, which is over."""
        self.placed.pop(job, None)
        self.hello = replace(self.hello, parts=tuple(part for part in self.hello.parts if part.job != job))
