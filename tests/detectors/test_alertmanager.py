"""Which node an alert of Alertmanager is about, and the evidence that it becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.message_texts import arguments_of, has

from understudy.detectors.alertmanager import Alert, AlertmanagerMessage, Reading, evidence_of
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.labels import KnownNodes, Unnamed
from understudy.messages import alertmanager
from understudy.messages.base import Message

NOW = 1_736_928_000.0
SINCE = "2025-01-15T07:50:00.123456789Z"  # ten minutes before
NEVER = "0001-01-01T00:00:00Z"  # Go's value where there is no time
NODES = KnownNodes({"node7": {"10.0.0.7"}, "node8": {"10.0.0.8"}, "gpu1.a.org": {"10.0.0.9"}, "one": {"10.0.1.1"}, "other": {"10.0.1.1"}})


def alert(status: str = "firing", ends: str = NEVER, since: str = SINCE, **labels: str) -> dict[str, Any]:
    return {
        "status": status,
        "labels": {"alertname": "GpuXid", "severity": "critical", "node": "node7", **labels},
        "annotations": {"summary": "Xid 79 on node7\nand more", "description": "fallen off the bus"},
        "startsAt": since,
        "endsAt": ends,
        "generatorURL": "http://prometheus/graph",
        "fingerprint": "b1b0",
    }


def message(*alerts: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "understudy", "groupLabels": {}}
    return {**group, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://alertmanager", "alerts": list(alerts), **more}


def read(*alerts: dict[str, Any], reading: Reading | None = None) -> list[Evidence | str]:
    found = AlertmanagerMessage.model_validate(message(*alerts))
    return evidence_of(found.alerts, NODES, reading or Reading(), NOW)


def seen(found: dict[str, Any], reading: Reading | None = None) -> Evidence:
    (one,) = read(found, reading=reading)
    assert isinstance(one, Evidence), one
    return one


def refused(found: dict[str, Any], reading: Reading | None = None) -> str:
    (one,) = read(found, reading=reading)
    assert isinstance(one, str), one
    return one


HOSTILE = "\x1b[2J\ud800" + "x" * 100_000
XID = alertmanager.ALERT(summary="Xid 79 on node7")
FIRES = Evidence("alertmanager:GpuXid", Subject.NODE, "node7", Severity.SUSPECT, XID, NOW - 599.876544, "gpuxid")


def test_an_alert_that_fires() -> None:
    assert seen(alert()) == FIRES
    assert seen(alert(ends="2025-01-15T09:00:00Z")) == FIRES, "an end that is not there yet is none"
    assert seen(alert(gpu="0")) == replace(FIRES, subject=Subject.DEVICE, part="gpu0")


def test_one_that_is_over() -> None:
    assert seen(alert("resolved", "2025-01-15T08:59:00+01:00")) == replace(FIRES, until=NOW - 60)
    assert seen(alert("firing", "2025-01-15T07:59:00Z")) == replace(FIRES, until=NOW - 60)
    assert seen(alert("resolved", "2025-01-15T08:00:30Z")) == replace(FIRES, until=NOW), "their clock is ahead"
    assert seen(alert("resolved")) == replace(FIRES, until=NOW)


def test_what_fires_still_in_the_same_group_is_not_over() -> None:
    """Alerts that differ in other labels only are one thing here, in whichever order they come."""
    first, second = alert("resolved", "2025-01-15T07:59:00Z", err_code="79", gpu="0"), alert(err_code="74", gpu="0")
    for both in ([first, second], [second, first]):
        found = read(*both)
        assert [one for one in found if isinstance(one, Evidence)] == [replace(FIRES, subject=Subject.DEVICE, part="gpu0")]
        assert alertmanager.STILL_FIRES() in found
    mild = alert("resolved", "2025-01-15T07:59:00Z", severity="info", gpu="0")
    assert isinstance(read(mild, second)[0], str), "what is worse lasts"
    for other in ({"gpu": "1"}, {"node": "node8", "gpu": "0"}, {"severity": "info", "gpu": "0"}, {"alertname": "Other", "gpu": "0"}):
        over, fires = read(first, alert(**other))
        assert isinstance(over, Evidence) and over.until == NOW - 60
        assert isinstance(fires, Evidence) and fires.until == 0.0


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"node": "node8"}, "node8"),
        ({"node": "node8", "Hostname": "node7", "instance": "10.0.0.9:9100"}, "node8"),
        ({"node": "", "Hostname": "node8"}, "node8"),
        ({"node": "", "hostname": "node8.b.org"}, "node8"),
        ({"node": "", "nodename": "node8", "instance": "10.0.0.9:9100"}, "node8"),
        ({"node": "", "Hostname": "node8:9400"}, "node8"),
        ({"node": "", "instance": "10.0.0.8:9100"}, "node8"),
        ({"node": "", "instance": "node8:9100"}, "node8"),
        ({"node": "gpu1"}, "gpu1.a.org"),
        ({"node": "gpu1.a.org"}, "gpu1.a.org"),
        ({"node": "10.0.0.9"}, "gpu1.a.org"),
    ],
)
def test_the_node_is_named_by_the_first_label(labels: dict[str, str], node: str) -> None:
    assert seen(alert(**labels)).name == node


@pytest.mark.parametrize(
    ("labels", "message", "arguments", "label"),
    [
        ({"node": ""}, alertmanager.NO_NODE_LABEL, {"labels": "node or Hostname or hostname or nodename or instance"}, ""),
        ({"node": "nobody"}, alertmanager.UNKNOWN_NODE, {"name": "nobody"}, "node"),
        ({"node": "nobody", "instance": "10.0.0.8:9100"}, alertmanager.UNKNOWN_NODE, {"name": "nobody"}, "node"),
        ({"node": "gpu1.b.org"}, alertmanager.UNKNOWN_NODE, {"name": "gpu1.b.org"}, "node"),
        ({"node": "10"}, alertmanager.UNKNOWN_NODE, {"name": "10"}, "node"),
        ({"node": "NODE7"}, alertmanager.UNKNOWN_NODE, {"name": "NODE7"}, "node"),
        ({"node": "", "instance": "10.0.1.1:9100"}, alertmanager.AMBIGUOUS_NODE, {"name": "10.0.1.1", "nodes": "one or other"}, "instance"),
        ({"node": HOSTILE}, alertmanager.UNKNOWN_NODE, {"name": HOSTILE[:200]}, "node"),
    ],
)
def test_an_unknown_name_is_no_node(labels: dict[str, str], message: Message, arguments: dict[str, object], label: str) -> None:
    reported = refused(alert(**labels))
    assert has(reported, message, **arguments) and reported.endswith(f"(label {label})" if label else "") and len(reported) < 500
    assert reported.isprintable()


def test_hosts_of_the_same_first_name() -> None:
    nodes = KnownNodes({"a": {"gpu1.a.org"}, "b": {"gpu1.b.org"}})
    assert nodes.find("gpu1.b.org") == "b"
    with pytest.raises(Unnamed) as unnamed:
        nodes.find("gpu1")
    assert has(unnamed.value, alertmanager.AMBIGUOUS_NODE, name="gpu1", nodes="a or b")


def test_labels_that_others_use() -> None:
    reading = Reading(node_label=["host"], suspect=["p1"])
    assert refused(alert(), reading) == alertmanager.NO_NODE_LABEL(labels="host")
    assert seen(alert(host="node8"), reading) == replace(FIRES, name="node8", severity=Severity.NOTE)
    assert seen(alert(host="node8", severity="p1"), reading).severity is Severity.SUSPECT


@pytest.mark.parametrize("severity", ["critical", "error", "page"])
def test_the_worst_severities_speak_against_the_node(severity: str) -> None:
    assert seen(alert(severity=severity)).severity is Severity.SUSPECT
    for other in ("warning", "info", "Critical", ""):
        assert seen(alert(severity=other)).severity is Severity.NOTE


@pytest.mark.parametrize(
    ("labels", "part"),
    [
        ({"gpu": "12"}, "gpu12"),
        ({"gpu": "GPU-8f2c"}, "GPU-8f2c"),
        ({"gpu": "3", "device": "nvidia3"}, "gpu3"),
        ({"device": "eth0"}, "eth0"),
        ({"device": "/dev/nvme0n1p1"}, "nvme0n1p1"),
        ({"device": "a b\u2028c"}, "a-b-c"),
        ({"device": "x" * 100_000}, "x" * 64),
        ({"device": "///"}, ""),
    ],
)
def test_the_part(labels: dict[str, str], part: str) -> None:
    found = seen(alert(**labels))
    assert (found.part, found.subject) == (part, Subject.DEVICE if part else Subject.NODE)


@pytest.mark.parametrize(
    ("name", "detector", "kind"),
    [
        ("NodeFilesystemFull", "alertmanager:NodeFilesystemFull", "nodefilesystemfull"),
        ("GPU XID 79!", "alertmanager:GPU-XID-79-", "gpu-xid-79-"),
        ("__x", "alertmanager:__x", "x"),
        ("节点故障", "alertmanager:节点故障", "alert"),
        ("a\x1b\u202e\xa0b", "alertmanager:a---b", "a---b"),
        ("n" * 100_000, f"alertmanager:{'n' * 64}", "n" * 64),
        ("", "alertmanager", "alert"),
    ],
)
def test_the_name_is_made_fit(name: str, detector: str, kind: str) -> None:
    found = seen(alert(alertname=name))
    assert (found.detector, found.kind) == (detector, kind)
    assert found.detector.isprintable()


def test_notes_for_a_person() -> None:
    def reported(**annotations: str) -> str:
        return str(arguments_of(seen({**alert(), "annotations": annotations}).detail)["summary"])

    assert reported(summary=" \n", description="\n it is \x1b[31mhot \ud800\n") == "it is \\x1b[31mhot \\ud800"
    assert reported(), "something is said anyway"
    assert len(reported(summary="x" * 100_000)) == 200


@pytest.mark.parametrize(
    "since", ["2025-01-15T08:06:00Z", "9999-12-31T23:59:59Z", NEVER, "0001-01-01T00:00:00+02:00", "1969-12-31T23:00:00Z"]
)
def test_a_time_that_cannot_be(since: str) -> None:
    assert has(refused(alert(since=since)), alertmanager.WRONG_TIME)
    assert seen(alert(since="2025-01-15T08:04:59Z")).happened == NOW, "clocks differ a little"
    assert seen(alert(since="2001-01-01T00:00:00Z")), "it fires for long"


def test_what_is_not_of_the_format() -> None:
    later = AlertmanagerMessage.model_validate(message({**alert(), "silenced": False}, isolation={"more": 1}))
    assert len(later.alerts) == 1
    for wrong, words in (
        (message(alert(), version="5"), "version"),
        (message(*[alert()] * 501), "alerts"),
        (message(alert(), truncatedAlerts=-1), "truncatedAlerts"),
        (message(alert("pending")), "status"),
        (message(alert(since="yesterday")), "startsAt"),
        (message(alert(since="2025-01-15T08:00:00")), "startsAt"),
        (message(alert(since="1736928000")), "startsAt"),
        (message({**alert(), "startsAt": 1736928000}), "startsAt"),
        (message({**alert(), "labels": {"node": 7}}), "labels"),
        (message({**alert(), "labels": None}), "labels"),
        ({"version": "4"}, "alerts"),
    ):
        with pytest.raises(ValidationError, match=words):
            AlertmanagerMessage.model_validate(wrong)


def test_a_name_of_an_alert_is_short() -> None:
    assert Alert.model_validate(alert(alertname="x\ny" * 1000)).name == ("x-y" * 22)[:64]
