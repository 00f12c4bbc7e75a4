"""What others tell over HTTP of nodes, and what they are answered."""

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
OLDEST = 7 * 86400.0  # seconds that something may be past that is told now
_PART = r"^([A-Za-z0-9][A-Za-z0-9_.:/@-]{0,63})?$"
_APART: dict[str, Any] = {  # the same as `_consistent` says
    "not": {
        "anyOf": [
            {"required": ["until", "for"]},
            {"required": ["subject", "part"], "properties": {"subject": {"const": "node"}, "part": {"minLength": 1}}},
            {"required": ["subject"], "properties": {"subject": {"enum": ["device", "link"]}, "part": {"maxLength": 0}}},
        ]
    }
}


class EvidenceItem(BaseModel):
    """What speaks against a node, or a part of it. Times in seconds; not both of `until` and `for`; a node as a whole has no part, a device
    or a link has one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_APART)

    node: str = Field(min_length=1, max_length=1000, description="its name, as in status, its address, or its host name")
    source: Name = Field(description="who says so; to policies and people it is the detector `webhook:SOURCE`")
    kind: Kind = Field(description="what was seen, for the rules of a policy; of one source always the same for the same thing")
    severity: Literal["note", "suspect"] = Field(
        default="suspect", description="`note`: a person should know; `suspect`: ranks should not be there"
    )
    detail: str = Field(
        default="", max_length=10_000, description="what was seen, for a person: its first line, up to 200 characters; empty: the kind"
    )
    subject: Literal["node", "device", "link"] = Field(
        default="node", description="what it speaks against; left out: a device if there is a part, else the node"
    )
    part: str = Field(default="", pattern=_PART, description="of a device or a link: which, as its node calls it: gpu3, nvme0n1, eth0")
    happened: float = Field(
        default=0.0,
        ge=0,
        le=LAST_TIME,
        allow_inf_nan=False,
        description="unix time, of the last 7 days; 0: now. With it the same thing told again is not counted again",
    )
    until: float = Field(
        default=0.0,
        ge=0,
        le=LAST_TIME,
        allow_inf_nan=False,
        description="unix time, at most 366 days from now, from which on it says nothing any more; one that is past ends what it led to; "
        "0: it does not wear off",
    )
    lasts: float = Field(
        default=0.0, alias="for", ge=0, le=LONGEST, allow_inf_nan=False, description="so long from now on it says something; 0: see `until`"
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
        """About one of these nodes; or why it says nothing now."""
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
    """What became of one piece of evidence."""

    node: str = Field(description="about which it is, as it is called here; empty: it names none")
    detector: str = Field(description="as which it counts for a policy; empty: it does not count")
    jobs: list[str] = Field(
        description="to whose policies it went: those that have the node, as far as the token may speak about them; "
        "none of a service's: it keeps new jobs away from the node"
    )
    refused: str = Field(description="why it went nowhere; empty: it went somewhere")
