"""Evidence about nodes over HTTP, and the answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from understudy.common.bounds import LAST_TIME
from understudy.detectors.alertmanager import SKEW
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.configuration import Kind, Name, first_line
from understudy.detectors.labels import KnownNodes, Unnamed
from understudy.messages import http_requests
from understudy.policy.rules import LONGEST

DETECTOR = "webhook"
OLDEST = 7 * 86400.0  # maximum age in seconds of evidence when it is reported
_PART = r"^([A-Za-z0-9][A-Za-z0-9_.:/@-]{0,63})?$"
_APART: dict[str, Any] = {  # the same as `_consistent` checks
    "not": {
        "anyOf": [
            {"required": ["until", "for"]},
            {"required": ["subject", "part"], "properties": {"subject": {"const": "node"}, "part": {"minLength": 1}}},
            {"required": ["subject"], "properties": {"subject": {"enum": ["device", "link"]}, "part": {"maxLength": 0}}},
        ]
    }
}


class EvidenceItem(BaseModel):
    """Evidence against a node, or a part of it. Times are in seconds. Give `until` or `for`, not both. `part` is needed for a device or a
    link, and not allowed for a node as a whole.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_APART)

    node: str = Field(min_length=1, max_length=1000, description="name of the node, as in status, its address, or its host name")
    source: Name = Field(description="source of the evidence; status and policies call it the detector `webhook:SOURCE`")
    kind: Kind = Field(
        description="kind of the evidence, for the rules of a policy; one source always uses the same kind for the same thing"
    )
    severity: Literal["note", "suspect"] = Field(
        default="suspect", description="`note`: for information; `suspect`: ranks should not be there"
    )
    detail: str = Field(
        default="", max_length=10_000, description="description for people: its first line, up to 200 characters; empty: the kind"
    )
    subject: Literal["node", "device", "link"] = Field(
        default="node", description="`node`, `device` or `link`; if left out: `device` if `part` is given, else `node`"
    )
    part: str = Field(default="", pattern=_PART, description="name of a device or a link, as its node calls it: gpu3, nvme0n1, eth0")
    happened: float = Field(
        default=0.0,
        ge=0,
        le=LAST_TIME,
        allow_inf_nan=False,
        description="unix time, within the last 7 days; 0: now. If it is given, repeated reports of the same event count once",
    )
    until: float = Field(
        default=0.0,
        ge=0,
        le=LAST_TIME,
        allow_inf_nan=False,
        description="unix time, at most 366 days from now, at which the evidence ends; a time in the past withdraws the evidence, and its "
        "consequences end; 0: it does not expire",
    )
    lasts: float = Field(
        default=0.0,
        alias="for",
        ge=0,
        le=LONGEST,
        allow_inf_nan=False,
        description="seconds for which the evidence is valid from now on; 0: see `until`",
    )

    @model_validator(mode="after")
    def _consistent(self) -> EvidenceItem:
        if {"until", "lasts"} <= self.model_fields_set:
            raise ValueError(http_requests.UNTIL_AND_FOR())
        if self.part and "subject" in self.model_fields_set and self.subject == "node":
            raise ValueError(http_requests.NODE_WITH_PART())
        if self.subject != "node" and not self.part:
            raise ValueError(http_requests.PART_NEEDED(subject=self.subject))
        return self

    def evidence(self, nodes: KnownNodes, now: float) -> Evidence | str:
        """Return the evidence, if it concerns one of these nodes; otherwise why it has no effect now."""
        try:
            node = nodes.find(self.node)
        except Unnamed as why:
            return str(why)
        if self.happened and not now - OLDEST <= self.happened <= now + SKEW:
            return http_requests.LONG_AGO(seconds=self.happened - now, oldest=OLDEST)
        if self.until > now + LONGEST:
            return http_requests.UNTIL_TOO_FAR(seconds=self.until - now, most=LONGEST)
        return Evidence(
            f"{DETECTOR}:{self.source}",
            Subject.DEVICE if self.part and self.subject == "node" else Subject(self.subject),
            node,
            Severity(self.severity),
            first_line(self.detail) or self.kind,
            min(self.happened or now, now),
            self.kind,
            self.part,
            now + self.lasts if self.lasts else self.until,
        )


class Heard(BaseModel):
    """The result for one piece of evidence."""

    node: str = Field(description="the orchestrator's name of the node; empty: the evidence names no known node")
    detector: str = Field(description="detector under whose name policies see the evidence; empty: they do not see it")
    jobs: list[str] = Field(
        description="jobs whose policies received the evidence: of the jobs on the node, those for which the token is valid. If the "
        "token is valid for all jobs, a service also places no new job on the node as long as the evidence lasts, unless it is a note"
    )
    refused: str = Field(description="why the evidence had no effect; empty: it had one")
