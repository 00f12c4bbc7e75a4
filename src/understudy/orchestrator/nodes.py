"""A node of a service: what its agent says of it, what was placed there, and what speaks against it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from understudy.common.bounds import cut
from understudy.core.placement import Offer
from understudy.core.topology import failure_domain
from understudy.detectors.base import Evidence
from understudy.links.messages import Hello, Part
from understudy.orchestrator.agent_link import AgentLink
from understudy.orchestrator.detection import too_many

SUSPICIONS = 100  # of one node that are kept
DETAIL = 1000  # bytes of each


@dataclass
class Node:
    hello: Hello  # its agent's last, with what was placed since then
    link: AgentLink | None  # None: away
    heard: float  # by the loop's clock
    since: float = 0.0  # the same, when its agent connected
    placed: dict[str, Part] = field(default_factory=dict)  # parts that this orchestrator has placed there, by job
    restarts: dict[str, int] = field(default_factory=dict)  # of parts, by job
    ended: set[str] = field(default_factory=set)  # jobs whose parts this agent was asked to end, because they were late
    suspected: dict[tuple[str, str, str], Evidence] = field(default_factory=dict)  # by detector, kind and part: what may still hold

    def doubt(self, now: float) -> str:
        """Why no job should be placed here, by what was seen; "": nothing speaks against it. `now`: unix time."""
        return next((f"{e.detail} ({e.detector})" for e in self.suspected.values() if not 0 < e.until <= now), "")

    def suspect(self, evidence: Evidence, now: float) -> None:
        """`now`: unix time. What is over is kept no more."""
        key = evidence.detector, evidence.kind, evidence.part
        self.suspected = {other: e for other, e in self.suspected.items() if other != key and not 0 < e.until <= now}
        over = 0 < evidence.until <= now
        if not over and not too_many(evidence.detector, [detector for detector, _, _ in self.suspected], SUSPICIONS):
            self.suspected[key] = replace(evidence, detail=cut(evidence.detail, DETAIL))

    def free(self) -> int:
        return self.hello.slots - sum(part.slots for part in self.hello.parts)

    def offer(self) -> Offer:
        """What it has for a job now."""
        hello = self.hello
        return Offer(hello.node, failure_domain(hello.node, hello.domain, hello.labels), self.free())

    def hear(self, hello: Hello, *, started: tuple[Part, ...]) -> None:
        """What its agent says. `started`: parts that it may not know of yet."""
        known = {part.job for part in hello.parts}
        self.hello = replace(hello, parts=(*hello.parts, *(part for part in started if part.job not in known)))

    def start(self, part: Part) -> None:
        self.placed[part.job] = part
        self.hello = replace(self.hello, parts=(*self.hello.parts, part))

    def end(self, job: str) -> None:
        """Its part in this job is over."""
        self.placed.pop(job, None)
        self.hello = replace(self.hello, parts=tuple(part for part in self.hello.parts if part.job != job))
