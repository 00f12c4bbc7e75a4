"""Evidence that others tell over HTTP: programs in our own words, and Prometheus's Alertmanager in its.

What they say of a node becomes `Evidence`, as if a detector had seen it. Nothing here asks a job or a clock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from understudy.common.bounds import LAST_TIME, plain
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.configuration import PART, first_line

MOST = 100  # items, or alerts, of one request
SKEW = 300.0  # seconds that somebody's clock may be ahead
OLDEST = 7 * 86400.0  # seconds: what happened before that is no news
NODE_LABELS = ("node", "Hostname", "hostname", "nodename", "instance")  # of an alert; the DCGM exporter says Hostname
SUSPECT = ("critical", "error", "page")  # values of an alert's label `severity`

Short = Annotated[str, Field(max_length=1000), AfterValidator(plain)]
UnixTime = Annotated[float, Field(ge=0, lt=LAST_TIME, allow_inf_nan=False)]


def _unix(moment: datetime) -> float:
    """Of the year 1, which stands for never, and of one that no clock shows: 0."""
    try:
        return max(0.0, moment.timestamp())
    except (OverflowError, ValueError):
        return 0.0


class Told(BaseModel):
    """Something that speaks against a node, or a part of it."""

    model_config = ConfigDict(extra="forbid")

    node: str = Field(min_length=1, max_length=1000, description="its name, or its address")
    source: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", description="who says so; rules of a policy know it as `webhook:SOURCE`"
    )
    kind: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$", description="what was seen, always the same for the same thing")
    severity: Literal["note", "suspect"] = Field(default="suspect", description="`note`: people should know. `suspect`: the policy decides")
    subject: Literal["node", "device", "link"] = Field(default="node", description="what it is about")
    part: str = Field(default="", pattern=f"{PART}|^$", description="of a device or a link: which, such as `gpu3`; of a node: empty")
    detail: Short = Field(default="", description="for a person")
    happened: UnixTime | None = Field(default=None, description="unix time; null: now")
    until: UnixTime | None = Field(default=None, description="unix time from which on it says nothing; if that has passed, it is over now")
    lasts: float | None = Field(default=None, gt=0, le=366 * 86400, description="the same, in seconds from now")

    def evidence(self, node: str, now: float) -> Evidence:
        """About a node by its name. Raises `ValueError`."""
        if self.until is not None and self.lasts is not None:
            raise ValueError("until and lasts: give one of them")
        if (self.subject == "node") == bool(self.part):
            raise ValueError("a device or a link needs its part, and a node has none")
        happened = _believed(self.happened, now) if self.happened is not None else now
        until = now + self.lasts if self.lasts is not None else self.until or 0.0
        detail = self.detail or self.kind
        severity, subject = Severity(self.severity), Subject(self.subject)
        return Evidence(f"webhook:{self.source}", subject, node, severity, detail, happened, self.kind, self.part, until)


class Alert(BaseModel):
    """As Alertmanager has it; what is not needed is not looked at."""

    status: Literal["firing", "resolved"] = Field(description="whether it lasts")
    labels: dict[str, Short] = Field(max_length=200, description="`alertname`, `severity`, those that name the node, `gpu` or `device`")
    annotations: dict[str, Short] = Field(default_factory=dict, max_length=200, description="`summary` or `description`: for a person")
    starts_at: datetime = Field(alias="startsAt", description="since when it lasts")
    ends_at: datetime | None = Field(default=None, alias="endsAt", description="when it ended; in the year 1: it has not")

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    def node(self, labels: Sequence[str], known: Mapping[str, Collection[str]]) -> str:
        """The node that it is about, by the first label that names one. Raises `ValueError`."""
        said = {label: self.labels[label] for label in labels if self.labels.get(label)}
        for value in said.values():
            host = re.sub(r":\d+$", "", value).strip("[]")
            for alias in (value, host, host.partition(".")[0]):
                names = known.get(alias, ())
                if len(names) == 1:
                    return next(iter(names))
        shown = ", ".join(f"{label}={value[:100]}" for label, value in said.items())
        raise ValueError(f"no node is known by {shown}" if said else f"it has none of the labels {', '.join(labels)}")

    def evidence(self, node: str, suspect: Collection[str], now: float) -> Evidence:
        """Raises `ValueError`."""
        device = self.labels.get("device", "") or (f"gpu{self.labels['gpu']}" if self.labels.get("gpu", "").isdigit() else "")
        part = device if re.fullmatch(PART, device) else ""
        kind = re.sub(r"[^a-z0-9_.-]", "-", self.name.lower())[:64].strip("-_.") or "alert"
        severe = self.labels.get("severity", "") in suspect
        said = next((self.annotations[key] for key in ("summary", "description", "message") if self.annotations.get(key)), self.name)
        ended = self.ends_at is not None and 0 < _unix(self.ends_at) <= now
        until = _unix(self.ends_at) if self.ends_at is not None and ended else now if self.status == "resolved" else 0.0
        return Evidence(
            f"alertmanager:{kind}",
            Subject.DEVICE if part else Subject.NODE,
            node,
            Severity.SUSPECT if severe else Severity.NOTE,
            first_line(said) or kind,
            max(now - OLDEST, min(_unix(self.starts_at), now)),
            kind,
            part,
            until,
        )


class Notification(BaseModel):
    """What Alertmanager sends (`webhook_config`), in version 4 of its format."""

    version: Literal["4"] = Field(description="of the format")
    alerts: list[Alert] = Field(max_length=MOST, description="those that are told of now")


class Answer(BaseModel):
    """What became of one item, or one alert, in their order."""

    node: str = Field(description="by its name; empty: none is known")
    jobs: list[str] = Field(description="that have this node, and now decide what follows")
    why_not: str = Field(default="", description="why nothing came of it")


def _believed(happened: float, now: float) -> float:
    if happened > now + SKEW:
        raise ValueError(f"it happened {happened - now:.0f} s from now")
    if happened < now - OLDEST:
        raise ValueError(f"it happened {(now - happened) / 86400:.0f} days ago")
    return min(happened, now)
