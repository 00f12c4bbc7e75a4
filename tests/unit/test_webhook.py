"""What others tell over HTTP becomes evidence: in our words, and in Alertmanager's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from understudy.detectors.base import Evidence, Severity, Subject
from understudy.orchestrator.webhook import NODE_LABELS, OLDEST, SUSPECT, Alert, Notification, Told

NOW = 1_800_000_000.0
KNOWN = {"gpu-07": {"gpu-07"}, "10.0.0.7": {"gpu-07"}, "rack": {"rack.a", "rack.b"}}


def told(**more: Any) -> Told:
    return Told(**{"node": "gpu-07", "source": "site", "kind": "hot", **more})


def alert(status: str = "firing", labels: dict[str, str] | None = None, **more: Any) -> Alert:
    known = {"alertname": "GPU is hot", "severity": "critical", "instance": "gpu-07:9400", **(labels or {})}
    starts = datetime.fromtimestamp(NOW - 60, UTC).isoformat()
    return Alert.model_validate({"status": status, "labels": known, "startsAt": starts, "endsAt": "0001-01-01T00:00:00Z", **more})


def test_in_our_words() -> None:
    made = told(subject="device", part="gpu3", detail="91 degrees", happened=NOW - 5, lasts=600).evidence("gpu-07", NOW)
    assert made == Evidence("webhook:site", Subject.DEVICE, "gpu-07", Severity.SUSPECT, "91 degrees", NOW - 5, "hot", "gpu3", NOW + 600)
    least = told().evidence("gpu-07", NOW)
    assert least == Evidence("webhook:site", Subject.NODE, "gpu-07", Severity.SUSPECT, "hot", NOW, "hot", "", 0.0)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"kind": "Hot!"}, "kind"),
        ({"source": "a b"}, "source"),
        ({"severity": "lost"}, "severity"),
        ({"subject": "worker"}, "subject"),
        ({"subject": "device", "part": "gpu 3"}, "part"),
        ({"happened": float("nan")}, "happened"),
        ({"until": 1e300}, "until"),
        ({"lasts": -1.0}, "lasts"),
        ({"detail": "x" * 1001}, "detail"),
        ({"more": 1}, "more"),
        ({"node": ""}, "node"),
    ],
)
def test_what_makes_no_sense_is_not_taken(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        told(**more)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"subject": "device"}, "needs its part"),
        ({"part": "gpu3"}, "a node has none"),
        ({"until": 1.0, "lasts": 1.0}, "give one of them"),
    ],
)
def test_what_does_not_go_together_is_refused_by_itself(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        told(**more).evidence("gpu-07", NOW)


@pytest.mark.parametrize(("happened", "why"), [(NOW + 3600, "3600 s from now"), (NOW - OLDEST - 86400, "8 days ago")])
def test_what_has_not_happened_or_long_ago_is_not_believed(happened: float, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        told(happened=happened).evidence("gpu-07", NOW)
    assert told(happened=NOW + 60).evidence("gpu-07", NOW).happened == NOW, "a clock may be a little ahead"


def test_a_text_cannot_steer_a_terminal() -> None:
    assert told(detail="\x1b[2J").evidence("gpu-07", NOW).detail == "\\x1b[2J"


def test_an_alert_that_fires() -> None:
    made = alert(labels={"gpu": "3"}, annotations={"summary": "91 degrees\nand more"}).evidence("gpu-07", SUSPECT, NOW)
    assert made == Evidence(
        "alertmanager:gpu-is-hot", Subject.DEVICE, "gpu-07", Severity.SUSPECT, "91 degrees", NOW - 60, "gpu-is-hot", "gpu3", 0.0
    )
    mild = alert(labels={"severity": "warning"}).evidence("gpu-07", SUSPECT, NOW)
    assert (mild.severity, mild.subject, mild.detail) == (Severity.NOTE, Subject.NODE, "GPU is hot")
    assert alert(labels={"severity": "warning"}).evidence("gpu-07", ["warning"], NOW).severity is Severity.SUSPECT


def test_an_alert_that_is_resolved_is_over() -> None:
    ended = datetime.fromtimestamp(NOW - 10, UTC).isoformat()
    assert alert("resolved", endsAt=ended).evidence("gpu-07", SUSPECT, NOW).until == NOW - 10
    assert alert("resolved").evidence("gpu-07", SUSPECT, NOW).until == NOW


def test_an_alert_that_fires_for_long_is_news_all_the_same() -> None:
    assert alert(startsAt="2001-01-01T00:00:00Z").evidence("gpu-07", SUSPECT, NOW).happened == NOW - OLDEST
    assert alert(startsAt="0001-01-01T00:00:00Z").evidence("gpu-07", SUSPECT, NOW).happened == NOW - OLDEST
    assert alert(startsAt="2101-01-01T00:00:00Z").evidence("gpu-07", SUSPECT, NOW).happened == NOW


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"instance": "10.0.0.7:9400"},
        {"Hostname": "gpu-07", "instance": "dcgm:9400"},
        {"node": "unknown", "Hostname": "gpu-07.example.org"},
        {"instance": "10.0.0.7"},
    ],
)
def test_the_node_of_an_alert(labels: dict[str, str]) -> None:
    assert alert(labels=labels).node(NODE_LABELS, KNOWN) == "gpu-07"


@pytest.mark.parametrize(
    ("labels", "asked", "why"),
    [
        ({"instance": "other:9400"}, NODE_LABELS, "no node is known by instance=other:9400"),
        ({"instance": "rack:9400"}, NODE_LABELS, "no node is known by instance=rack:9400"),  # two are
        ({}, ("host",), "it has none of the labels host"),
    ],
)
def test_an_alert_about_nobody_that_is_known(labels: dict[str, str], asked: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        alert(labels=labels).node(asked, KNOWN)


def test_a_later_alertmanager_may_say_more_and_another_format_is_not_guessed() -> None:
    whole = {"version": "4", "groupKey": "{}:{}", "receiver": "understudy", "alerts": [], "new": 1}
    assert Notification.model_validate(whole).alerts == []
    with pytest.raises(ValidationError):
        Notification.model_validate({**whole, "version": "5"})
    with pytest.raises(ValidationError):
        Notification.model_validate({**whole, "alerts": [{"status": "firing", "labels": {}, "startsAt": "now"}]})
