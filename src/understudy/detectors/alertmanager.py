"""Turn alerts of Prometheus' Alertmanager, as its webhook sends them (format version 4), into evidence. Pure: the time is passed in.

- The node is named by the first of these labels that the alert has: `node`, `Hostname` (the DCGM exporter's), `hostname`, `nodename` and
  `instance`, without a port. The others are ignored: an alert about a node has an `instance`, too, which may be that of the exporter.
- The part is `gpu` ("0" is "gpu0"), else `device`; without either the alert is about the node.
- The alert's name becomes the detector, `alertmanager:NAME`, so that each alert has its own taint, and in lower case the kind.
- It began at `startsAt`. One that fires has no end, since Alertmanager repeats it only every few hours; one that is resolved is over at
  `endsAt`.

Alertmanager sends all alerts of a group together. Alerts that differ only in other labels are one here, and it lasts as long as one of the
group fires that is as severe.

Known limits: that applies within a group. If alerts of one name about one part are in different groups (`group_by: ['...']`), the first
one that is resolved ends it. So does one where `max_alerts` has cut off another that fires.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.configuration import first_line
from understudy.detectors.labels import PART_LABELS, KnownNodes, Unnamed, first_of, part_of, without_port
from understudy.messages import alertmanager

NAME = "alertmanager"
NODE_LABELS = ("node", "Hostname", "hostname", "nodename", "instance")
SUSPECT = ("critical", "error", "page")  # values of the label `severity` that count against the node
SKEW = 300.0  # seconds by which other clocks may be ahead of ours
LONGEST = 64  # characters of a name or a part


def _text(value: Any) -> Any:
    if not isinstance(value, str) or not re.match(r"\d{4}-", value):
        raise ValueError(alertmanager.NO_TIME())
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_text)]
Label = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,127}$")]
Word = Annotated[str, Field(min_length=1, max_length=100)]


class Alert(BaseModel):
    """An alert, as Alertmanager sends it. Other fields are ignored."""

    status: Literal["firing", "resolved"] = Field(description="`firing` or `resolved`")
    labels: dict[str, str] = Field(description="labels of the alert; `alertname` is its name, `severity` its severity")
    annotations: dict[str, str] = Field(
        default_factory=dict, description="`summary`, or else `description`: its first line is shown to people"
    )
    starts: Moment = Field(alias="startsAt", description="start time")
    ends: Moment | None = Field(default=None, alias="endsAt", description="end time; the year 1 stands for none")

    @property
    def name(self) -> str:
        return re.sub(r"[^\w.-]", "-", self.labels.get("alertname", ""))[:LONGEST]


class AlertmanagerMessage(BaseModel):
    """A group of alerts, as Alertmanager sends it. Other fields are ignored."""

    version: Literal["4"] = Field(description="version of the format")
    truncated: int = Field(default=0, alias="truncatedAlerts", ge=0, le=1 << 53, description="number of alerts that `max_alerts` left out")
    alerts: list[Alert] = Field(max_length=500, description="alerts of the group")


class Reading(BaseModel):
    """How labels are read. An unknown word is refused, because a typing error would go unnoticed for long."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node_label: list[Label] = Field(
        default=list(NODE_LABELS),
        max_length=20,
        description="labels that name the node, by its name, address or host name; the first one that an alert has is used",
    )
    suspect: list[Word] = Field(
        default=list(SUSPECT),
        max_length=20,
        description="an alert whose label `severity` has one of these values is evidence against the node; other alerts are notes",
    )


def evidence_of(alerts: Sequence[Alert], nodes: KnownNodes, reading: Reading, now: float) -> list[Evidence | str]:
    """Return the evidence of each alert, or the reason why it has no effect."""
    found = [_heard(alert, nodes, reading, now) for alert in alerts]
    fires = {(*_thing(one), one.severity) for one in found if isinstance(one, Evidence) and not one.until}
    again = alertmanager.STILL_FIRES()

    def lasts(one: Evidence | str) -> bool:
        return (
            isinstance(one, Evidence)
            and one.until > 0
            and any((*_thing(one), as_bad) in fires for as_bad in {one.severity, Severity.SUSPECT})
        )

    return [again if lasts(one) else one for one in found]


def _thing(evidence: Evidence) -> tuple[str, str, str]:
    return evidence.name, evidence.detector, evidence.part


def _heard(alert: Alert, nodes: KnownNodes, reading: Reading, now: float) -> Evidence | str:
    label, value = first_of(alert.labels, reading.node_label)
    if not value:
        return alertmanager.NO_NODE_LABEL(labels=" or ".join(reading.node_label))
    try:
        node = nodes.find(without_port(value))
    except Unnamed as why:
        return f"{why} (label {label})"
    began, ended = alert.starts.timestamp(), alert.ends.timestamp() if alert.ends is not None else 0.0
    if not 0 < began <= now + SKEW:
        return alertmanager.WRONG_TIME(began=alert.starts.isoformat())
    until = 0.0
    if alert.status == "resolved":
        until = min(ended, now) if ended > 0 else now  # it is over, whatever their clock shows
    elif 0 < ended <= now:
        until = ended
    part = _part(alert)
    summary = next((line for name in ("summary", "description") if (line := first_line(alert.annotations.get(name, "")))), "an alert fires")
    return Evidence(
        f"{NAME}:{alert.name}" if alert.name else NAME,
        Subject.DEVICE if part else Subject.NODE,
        node,
        Severity.SUSPECT if alert.labels.get("severity") in reading.suspect else Severity.NOTE,
        alertmanager.ALERT(summary=summary),
        min(began, now),
        _kind(alert.name),
        part,
        until,
    )


def _part(alert: Alert) -> str:
    """Return the part, normalized: a device may be called /dev/nvme0n1 by the exporter, and is nvme0n1 here."""
    part = part_of(*first_of(alert.labels, PART_LABELS)).removeprefix("/dev/")
    return re.sub(r"[^A-Za-z0-9_.:/@-]", "-", part).lstrip("_.:/@-")[:LONGEST]


def _kind(name: str) -> str:
    return re.sub(r"[^a-z0-9_.-]", "-", name.lower()).lstrip("_.-")[:LONGEST] or "alert"
