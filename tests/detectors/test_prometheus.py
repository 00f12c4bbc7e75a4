"""Rules about metrics: queries, pages, time, configuration."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.detectors.prometheus_fake import EVERY, NOW, Fake, asking, job, note, only, reading, rule, serving
from tests.message_texts import has, refused

from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.configuration import read
from understudy.detectors.prometheus import PATIENCE, Prometheus, PrometheusSettings, Server
from understudy.detectors.prometheus_answers import MOST_LINE, MOST_SERIES
from understudy.messages import detector_files, prometheus
from understudy.messages.base import Message

DCGM = """\
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node0"} 0
DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-b",device="nvidia3",modelName="a \\"quoted\\" {name}, b",Hostname="node1"} 79
# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="1",Hostname="node0"} 12 1800000000000
# TYPE up_to_date gauge
up_to_date 1
"""


def found_by(name: str, value: float, expression: str, compare: str = ">", number: float = 80) -> str:
    return prometheus.FOUND(rule=name, value=value, compare=compare, number=number, lasting="", expression=expression)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(Fake()) as made:
        yield made


# -- queries ----------------------------------------------------------------------------------------------------------


def test_a_query_that_holds_is_evidence_against_the_node(fake: Fake) -> None:
    fake.vector(({"instance": "node1:9100"}, "85.5"), ({"instance": "node0:9100"}, "20"))
    found = only(asking(fake, rule(query='temperature{job="node"}', until=300)).look(job()))
    assert found == Evidence(
        "prometheus",
        Subject.NODE,
        "node1",
        Severity.SUSPECT,
        found_by("hot", 85.5, 'temperature{job="node"}'),
        NOW,
        "too-hot",
        until=NOW + 300,
    )
    (path, headers) = fake.asked[0]
    assert urlsplit(path).path == "/api/v1/query" and parse_qs(urlsplit(path).query) == {"query": ['temperature{job="node"}']}
    assert "Authorization" not in headers


@pytest.mark.parametrize("compare", [">", ">=", "<", "<=", "==", "!="])
def test_comparisons(fake: Fake, compare: str) -> None:
    values = {"below": "79.999", "equal": "80", "above": "8.1e1", "endless": "+Inf", "bottom": "-Inf", "none": "NaN"}
    fake.vector(*(({"node": name}, value) for name, value in values.items()))
    found = asking(fake, rule(query="q", compare=compare, node_label="node")).look(job(nodes={name: name for name in values}))
    low, same, high = {"below", "bottom"}, {"equal"}, {"above", "endless"}
    wanted = {">": high, ">=": high | same, "<": low, "<=": low | same, "==": same, "!=": low | high}[compare]
    assert {one.name for one in found} == wanted, "what is no number says nothing"


@pytest.mark.parametrize("instance", ["node1", "node1:9100", "[node1]:9100"])
def test_a_node_without_the_port_of_its_instance(fake: Fake, instance: str) -> None:
    fake.vector(({"instance": instance}, "90"))
    assert only(asking(fake).look(job())).name == "node1"


@pytest.mark.parametrize(
    ("instance", "known"),
    [("[fd00::1]:9100", "fd00::1"), ("fd00::1", "fd00::1"), ("10.0.0.7:9100", "10.0.0.7"), ("10.0.0.7:9100", "10.0.0.7:9100")],
)
def test_nodes_by_a_map(fake: Fake, instance: str, known: str) -> None:
    fake.vector(({"instance": instance}, "90"))
    assert only(asking(fake, nodes={known: "node1"}).look(job())).name == "node1"


def test_a_node_that_is_not_in_the_job_is_left_out(fake: Fake) -> None:
    fake.vector(({"instance": "node2:9100"}, "90"), ({"instance": "\x1b[2J"}, "90"))
    assert asking(fake).look(job()) == []


def test_hostname_comes_before_instance(fake: Fake) -> None:
    fake.vector(({"instance": "node0:9400", "Hostname": "node1", "gpu": "3", "device": "nvidia3"}, "90"))
    found = only(asking(fake, rule(query="q", subject="device", severity="note")).look(job()))
    assert (found.subject, found.name, found.part, found.severity) == (Subject.DEVICE, "node1", "gpu3", Severity.NOTE)


@pytest.mark.parametrize(
    ("labels", "more", "part"),
    [
        ({"device": "nvme0n1"}, {}, "nvme0n1"),
        ({"gpu": "MIG-1"}, {}, "MIG-1"),
        ({"gpu": "1", "port": "mlx5_0"}, {"part_label": "port"}, "mlx5_0"),
    ],
)
def test_parts(fake: Fake, labels: dict[str, str], more: dict[str, str], part: str) -> None:
    fake.vector(({"instance": "node0", **labels}, "90"))
    found = only(asking(fake, rule(query="q", subject="link", **more)).look(job()))
    assert (found.subject, found.name, found.part) == (Subject.LINK, "node0", part)


@pytest.mark.parametrize(
    "labels", [{}, {"instance": ""}, {"instance": ":9100", "gpu": "1"}, {"instance": "node0"}, {"instance": "node0", "gpu": "\x1b[2J"}]
)
def test_missing_labels_are_reported(fake: Fake, labels: dict[str, str]) -> None:
    fake.vector((labels, "90"), (labels, "91"))
    found = asking(fake, rule(query="q", subject="device")).look(job())
    if labels.get("instance") == ":9100":
        assert found == [], "of no node of the job"
    else:
        message = prometheus.NO_PART if labels.get("instance") == "node0" else prometheus.NO_NODE
        assert has(note(found, "prometheus-labels"), message, rule="hot")


def test_one_series_of_several_is_enough_and_is_reported_once(fake: Fake) -> None:
    fake.vector(*(({"instance": "node0", "mountpoint": name}, value) for name, value in {"/": "10", "/a": "90", "/b": "95"}.items()))
    assert only(asking(fake).look(job())).name == "node0"


# -- for --------------------------------------------------------------------------------------------------------------


def looks(detector: Prometheus, fake: Fake, values: list[str]) -> list[bool]:
    """Whether there is evidence against node0 in each of these looks; "" is a server that has no answer."""
    found = []
    for number, value in enumerate(values):
        fake.status = 200 if value else 503
        fake.vector(({"instance": "node0"}, value)) if value != "none" else fake.vector()
        found.append(any(one.name == "node0" for one in detector.look(job(number * EVERY))))
    return found


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["90", "90", "90", "90"], [False, False, True, True]),
        (["90", "90", "70", "90", "90", "90"], [False, False, False, False, False, True]),
        (["90", "90", "none", "90", "90", "90"], [False, False, False, False, False, True]),
        (["90", "90", "NaN", "90", "90"], [False, False, False, False, False]),
        (["90", "", "90"], [False, False, True]),
        (["90", *[""] * PATIENCE, "90", "90", "90"], [False, *[False] * PATIENCE, False, False, True]),
    ],
    ids=["holds", "not between", "not there between", "no number between", "no answer between", "no answer for too long"],
)
def test_it_must_hold_in_every_look(fake: Fake, values: list[str], wanted: list[bool]) -> None:
    assert looks(asking(fake, rule(query="q", **{"for": 2 * EVERY})), fake, values) == wanted


def test_what_cannot_be_seen_any_more_is_forgotten(fake: Fake) -> None:
    detector = asking(fake, rule(query="q", **{"for": EVERY}))
    looks(detector, fake, ["90"])
    assert len(detector._seen) == 1
    looks(detector, fake, ["70", *[""] * PATIENCE])
    assert detector._seen == {}
    looks(detector, fake, ["90", *[""] * (PATIENCE + 1)])
    assert detector._seen == {}


def test_since_when_and_for_how_long_is_reported(fake: Fake) -> None:
    detector = asking(fake, rule(query="q", until=60, **{"for": 20}))
    fake.vector(({"instance": "node0"}, "90"))
    assert [detector.look(job(0)), detector.look(job(15))] == [[], []]
    found = only(detector.look(job(30)))
    assert (found.happened, found.until) == (NOW, NOW + 90) and has(found.detail, prometheus.FOUND, lasting=" for 30 s")


def test_two_series_that_take_turns_do_not_hold(fake: Fake) -> None:
    detector = asking(fake, rule(query="q", **{"for": EVERY}))
    for number in range(4):
        fake.vector(({"instance": "node0", "cpu": str(number % 2)}, "90"))
        assert detector.look(job(number * EVERY)) == []


def test_a_clock_that_was_set_back_restarts(fake: Fake) -> None:
    detector = asking(fake, rule(query="q", **{"for": EVERY}))
    fake.vector(({"instance": "node0"}, "90"))
    assert [len(detector.look(job(after))) for after in (100, 0, 15)] == [0, 0, 1]


def test_each_rule_has_its_own_time(fake: Fake) -> None:
    detector = asking(fake, rule(query="q"), rule(name="long", query="q", kind="long", **{"for": EVERY}))
    fake.vector(({"instance": "node0"}, "90"))
    assert [one.kind for one in detector.look(job())] == ["too-hot"]
    assert sorted(one.kind for one in detector.look(job(EVERY))) == ["long", "too-hot"]


# -- exporters' pages -------------------------------------------------------------------------------------------------


def test_a_sample_of_an_exporter(fake: Fake) -> None:
    fake.body = DCGM.encode()
    xid = rule(name="xid", sample="DCGM_FI_DEV_XID_ERRORS", compare="!=", number=0, subject="device", kind="xid")
    found = only(reading(fake, xid).look(job()))
    assert (found.name, found.part, found.kind) == ("node1", "gpu3", "xid")
    assert found.detail == found_by("xid", 79, "DCGM_FI_DEV_XID_ERRORS", "!=", 0)
    assert fake.asked[0][0] == "/metrics"


def test_a_counter_keeps_its_name(fake: Fake) -> None:
    fake.body = DCGM.encode()
    found = reading(fake, rule(sample="DCGM_FI_DEV_PCIE_REPLAY_COUNTER", number=10)).look(job())
    assert only(found).name == "node0"


@pytest.mark.parametrize(
    ("more", "nodes"),
    [
        ({"labels": {"gpu": "3"}}, {"node1"}),
        ({"labels": {"gpu": "3", "Hostname": "node0"}}, set()),
        ({"labels_not": {"gpu": "3"}}, {"node0"}),
        ({"labels": {"absent": ""}}, {"node0", "node1"}),
        ({"labels_not": {"absent": ""}}, set()),
    ],
)
def test_matchers(fake: Fake, more: dict[str, Any], nodes: set[str]) -> None:
    fake.body = DCGM.encode()
    assert {one.name for one in reading(fake, rule(sample="DCGM_FI_DEV_XID_ERRORS", number=-1, **more)).look(job())} == nodes


def test_a_page_without_labels_is_of_its_own_host(fake: Fake) -> None:
    fake.body = b"node_load1 90\r\nnode_load15 1\n"
    port = urlsplit(fake.url).port
    assert reading(fake, rule(sample="node_load1")).look(job(nodes={"w0": "127.0.0.1"}))[0].name == "127.0.0.1"
    settings = {"exporters": [{"url": fake.url}], "rules": [rule(sample="node_load1")], "nodes": {f"127.0.0.1:{port}": "node1"}}
    assert only(Prometheus(read(PrometheusSettings, settings)).look(job())).name == "node1"


def test_a_page_of_one_node_speaks_against_no_other(fake: Fake) -> None:
    fake.body = b'x{Hostname="node1"} 90\n'
    assert only(reading(fake, rule(sample="x"), node="node0").look(job())).name == "node0"


def test_a_metric_that_no_page_has_is_reported(fake: Fake) -> None:
    fake.body = b"<html>welcome</html>\nx_total 90\nx{ 90"
    reported = note(reading(fake, rule(sample="y")).look(job()), "prometheus-absent")
    assert has(reported, prometheus.ABSENT, metric="y", rule="hot")


PAGES = {
    "no value": b'x{instance="node0"}\n',
    "no number": b'x{instance="node0"} much\n',
    "open": b'x{instance="node0" 90\n',
    "no quotes": b"x{instance=node0} 90\n",
    "twice": b'x{instance="node0",instance="node1"} 90\n',
    "an empty name": b'x{a="b", ="c"} 90\n',
    "no text": b'x{instance="\xff"} 90\n',
    "long": b'x{instance="node0",a="' + b"y" * MOST_LINE + b'"} 90\n',
    "many": b'x{instance="node0"} 90\n' * (MOST_SERIES + 1),
    "beyond floats": b'x{instance="node0"} ' + b"9" * 400 + b"\n",
    "second line": b'x{instance="node0"} 90\nx{instance="node0"} ?\n',
}


@pytest.mark.parametrize("body", PAGES.values(), ids=PAGES)
def test_a_page_that_cannot_be_read_speaks_against_no_node(fake: Fake, body: bytes) -> None:
    fake.body = body
    found = reading(fake, rule(sample="x")).look(job())
    reported = note(found, "prometheus-page")
    assert has(reported, prometheus.NO_PAGE) or has(reported, prometheus.NO_PAGE_FOR_RULE, rule="hot")


def test_one_page_that_is_away_does_not_hide_the_others(fake: Fake) -> None:
    fake.body = b'x{instance="node0"} 90\n'
    with socket.create_server(("127.0.0.1", 0)) as away:
        closed = away.getsockname()[1]
    settings = {"exporters": [{"url": f"http://127.0.0.1:{closed}"}, {"url": fake.url}], "rules": [rule(sample="x")]}
    found = Prometheus(read(PrometheusSettings, settings)).look(job())
    assert [(one.name, one.kind) for one in found] == [("node0", "too-hot"), ("", "prometheus-page")]


# -- configuration ----------------------------------------------------------------------------------------------------

SERVER = {"url": "https://prometheus:9090"}


@pytest.mark.parametrize(
    ("found", "message", "arguments"),
    [
        ({"server": SERVER}, detector_files.MISSING_SETTING, {"name": "rules"}),
        ({"server": SERVER, "rules": []}, detector_files.BAD_SETTING, {"place": "rules: "}),
        ({"server": SERVER, "rules": [rule()]}, prometheus.QUERY_OR_SAMPLE, {}),
        ({"server": SERVER, "rules": [rule(query="q", sample="s")]}, prometheus.QUERY_OR_SAMPLE, {}),
        ({"rules": [rule(query="q")]}, prometheus.NO_SERVER, {}),
        ({"rules": [rule(sample="s")]}, prometheus.NO_EXPORTERS, {}),
        ({"server": {"url": "https://a?b=c"}, "rules": [rule(query="q")]}, prometheus.URL_WITH_QUERY, {}),
        ({"server": SERVER, "rules": [rule(query="q"), rule(query="r")]}, prometheus.TWO_RULES, {"rule": "hot"}),
        ({"server": SERVER, "rules": [rule(query="q", labels={"a": "b"})]}, prometheus.LABELS_OF_A_QUERY, {}),
        ({"server": SERVER, "rules": [rule(query="q", part_label="gpu")]}, prometheus.PART_OF_A_NODE, {}),
        ({"server": SERVER, "rules": [rule(query="q", compare="=")]}, detector_files.BAD_SETTING, {"place": "rules.0.compare: "}),
        ({"server": SERVER, "rules": [rule(query="q", number=float("nan"))]}, detector_files.BAD_SETTING, {"place": "rules.0.number: "}),
        ({"server": SERVER, "rules": [rule(query="q", severity="lost")]}, detector_files.BAD_SETTING, {"place": "rules.0.severity: "}),
        ({"server": SERVER, "rules": [rule(query="q", subject="worker")]}, detector_files.BAD_SETTING, {"place": "rules.0.subject: "}),
        ({"server": SERVER, "rules": [rule(query="q", form="x")]}, detector_files.UNKNOWN_SETTING, {"name": "rules.0.form"}),
        ({"server": SERVER, "rules": [rule(query="q", **{"for": -1})]}, detector_files.BAD_SETTING, {"place": "rules.0.for: "}),
        ({"exporters": [SERVER], "rules": [rule(sample="s{}")]}, detector_files.BAD_SETTING, {"place": "rules.0.sample: "}),
    ],
)
def test_a_wrong_entry_is_named(found: dict[str, Any], message: Message, arguments: dict[str, Any]) -> None:
    with refused(ValueError, message, **arguments):
        read(PrometheusSettings, found)


def test_the_place_of_a_wrong_entry_is_named() -> None:
    with pytest.raises(ValueError) as raised:
        read(PrometheusSettings, {"server": SERVER, "rules": [rule(query="q"), rule()]})
    assert str(raised.value) == f"rules.1: {prometheus.QUERY_OR_SAMPLE()}"


@pytest.mark.parametrize(
    ("found", "message", "arguments"),
    [
        ({"url": "prometheus:9090"}, prometheus.URL_WITHOUT_SCHEME, {}),
        ({"url": "file:///etc/passwd"}, prometheus.URL_WITHOUT_SCHEME, {}),
        ({"url": "http://"}, prometheus.URL_WITHOUT_SCHEME, {}),
        ({"url": "http://a:b@host"}, prometheus.URL_WITH_PASSWORD, {}),
        ({"url": "http://host:x"}, prometheus.NO_URL, {}),
        ({"url": "http://host/a b"}, prometheus.URL_WITH_OTHERS, {}),
        ({"url": "http://host/\r\nX: y"}, prometheus.URL_WITH_OTHERS, {}),
        ({"url": "http://host", "token_file": "/t"}, prometheus.TOKEN_IN_THE_CLEAR, {}),
        ({"url": "http://host", "ca_file": "/t"}, prometheus.CA_WITHOUT_TLS, {}),
        ({"url": "http://host", "limit": 0}, detector_files.BAD_SETTING, {"place": "limit: "}),
        ({"url": "http://host", "password": "s3cret"}, detector_files.UNKNOWN_SETTING, {"name": "password"}),
    ],
)
def test_a_wrong_server_is_named(found: dict[str, Any], message: Message, arguments: dict[str, Any]) -> None:
    with refused(ValueError, message, **arguments) as raised:
        read(Server, found)
    assert "s3cret" not in str(raised.value)
