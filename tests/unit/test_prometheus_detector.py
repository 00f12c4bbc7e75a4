"""Rules about metrics, against a real HTTP server that answers what it is told to, well or badly."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from understudy.detectors.base import Evidence, JobView, Severity, Subject
from understudy.detectors.configuration import read
from understudy.detectors.prometheus import MOST, PATIENCE, Prometheus, PrometheusSettings, Server
from understudy.detectors.prometheus_answers import MOST_LINE, MOST_SERIES

NOW = 1_800_000_000.0
EVERY = 15.0
NODES = {"w0": "node0", "w1": "node1"}

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


class Fake(ThreadingHTTPServer):
    """Answers one page, or something else entirely."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body = b""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.raw: bytes | None = None  # instead of an answer
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.held = threading.Event()  # set: answers end
        self.held.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Who asked has gone before the end of the answer, as many here do."""

    def vector(self, *series: tuple[dict[str, str], str]) -> None:
        result = [{"metric": labels, "value": [NOW, value]} for labels, value in series]
        self.body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Fake

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers.items())))
        if self.server.raw is not None:
            self.wfile.write(self.server.raw)
            self.wfile.flush()
        else:
            self.send_response(self.server.status)
            for name, value in self.server.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(self.server.body)
        self.server.held.wait(60)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(made: Fake) -> Iterator[Fake]:
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.held.set()
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(Fake()) as made:
        yield made


def rule(**more: Any) -> dict[str, Any]:
    return {"name": "hot", "compare": ">", "number": 80, "kind": "too-hot", **more}


def asking(fake: Fake, *rules: dict[str, Any], nodes: dict[str, str] | None = None, **server: Any) -> Prometheus:
    found = {"every": EVERY, "server": {"url": fake.url, **server}, "rules": rules or [rule(query="temperature")], "nodes": nodes or {}}
    return Prometheus(read(PrometheusSettings, found))


def reading(fake: Fake, *rules: dict[str, Any], **exporter: Any) -> Prometheus:
    return Prometheus(read(PrometheusSettings, {"exporters": [{"url": f"{fake.url}/metrics", **exporter}], "rules": rules}))


def job(after: float = 0.0, nodes: dict[str, str] = NODES) -> JobView:
    return JobView(NOW + after, {0: "w0", 1: "w1"}, (), nodes)


def only(found: list[Evidence]) -> Evidence:
    assert len(found) == 1, found
    return found[0]


def note(found: list[Evidence], kind: str) -> str:
    one = only(found)
    assert (one.detector, one.subject, one.name, one.severity, one.part) == ("prometheus", Subject.NODE, "", Severity.NOTE, "")
    assert one.kind == kind
    assert one.detail.isprintable() and len(one.detail) < 1000
    return one.detail


# -- queries ----------------------------------------------------------------------------------------------------------


def test_a_query_that_holds_is_evidence_against_the_node(fake: Fake) -> None:
    fake.vector(({"instance": "node1:9100"}, "85.5"), ({"instance": "node0:9100"}, "20"))
    found = only(asking(fake, rule(query='temperature{job="node"}', until=300)).look(job()))
    assert found == Evidence(
        "prometheus",
        Subject.NODE,
        "node1",
        Severity.SUSPECT,
        'hot: 85.5, which is > 80: temperature{job="node"}',
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
def test_missing_labels_are_told(fake: Fake, labels: dict[str, str]) -> None:
    fake.vector((labels, "90"), (labels, "91"))
    found = asking(fake, rule(query="q", subject="device")).look(job())
    if labels.get("instance") == ":9100":
        assert found == [], "of no node of the job"
    else:
        assert "the rule hot names no" in note(found, "prometheus-labels")


def test_one_series_of_several_is_enough_and_is_told_once(fake: Fake) -> None:
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


def test_since_when_and_for_how_long_is_told(fake: Fake) -> None:
    detector = asking(fake, rule(query="q", until=60, **{"for": 20}))
    fake.vector(({"instance": "node0"}, "90"))
    assert [detector.look(job(0)), detector.look(job(15))] == [[], []]
    found = only(detector.look(job(30)))
    assert (found.happened, found.until) == (NOW, NOW + 90) and "for 30 s" in found.detail


def test_two_series_that_take_turns_do_not_hold(fake: Fake) -> None:
    detector = asking(fake, rule(query="q", **{"for": EVERY}))
    for number in range(4):
        fake.vector(({"instance": "node0", "cpu": str(number % 2)}, "90"))
        assert detector.look(job(number * EVERY)) == []


def test_a_clock_that_was_set_back_begins_anew(fake: Fake) -> None:
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
    assert found.detail == "xid: 79, which is != 0: DCGM_FI_DEV_XID_ERRORS"
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


def test_a_metric_that_no_page_has_is_told(fake: Fake) -> None:
    fake.body = b"<html>welcome</html>\nx_total 90\nx{ 90"
    assert "no exporter has y" in note(reading(fake, rule(sample="y")).look(job()), "prometheus-absent")


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
    assert "cannot be read" in note(found, "prometheus-page")


def test_one_page_that_is_away_does_not_hide_the_others(fake: Fake) -> None:
    fake.body = b'x{instance="node0"} 90\n'
    with socket.create_server(("127.0.0.1", 0)) as away:
        closed = away.getsockname()[1]
    settings = {"exporters": [{"url": f"http://127.0.0.1:{closed}"}, {"url": fake.url}], "rules": [rule(sample="x")]}
    found = Prometheus(read(PrometheusSettings, settings)).look(job())
    assert [(one.name, one.kind) for one in found] == [("node0", "too-hot"), ("", "prometheus-page")]


# -- servers that are down, slow or hostile ---------------------------------------------------------------------------

VECTOR = {"status": "success", "data": {"resultType": "vector", "result": []}}
SERIES = {"metric": {"instance": "node0"}, "value": [NOW, "90"]}


def with_result(*series: Any, kind: str = "vector") -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": list(series)}}).encode()


ANSWERS = {
    "nothing": b"",
    "a page": b"<html>",
    "null": b"null",
    "an error": b'{"status":"error","errorType":"bad_data","error":"\\u001b[2J"}',
    "a scalar": b'{"status":"success","data":{"resultType":"scalar","result":[1,"90"]}}',
    "a matrix": with_result({"metric": {"instance": "node0"}, "values": [[NOW, "90"]]}, kind="matrix"),
    "a label that is a number": with_result({"metric": {"instance": 7}, "value": [NOW, "90"]}),
    "a value that is a number": with_result({"metric": {"instance": "node0"}, "value": [NOW, 90]}),
    "a value that is none": with_result({"metric": {"instance": "node0"}, "value": [NOW, "hot"]}),
    "half a value": with_result({"metric": {"instance": "node0"}, "value": [NOW]}),
    "one of two": with_result(SERIES, "x"),
    "many": with_result(*[SERIES] * (MOST_SERIES + 1)),
    "deep": b"[" * 100000,
    "cut": with_result(SERIES)[:-1],
    "half a pair": b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"instance":"\\ud800"},"value":[1,"90"]}]}}',
}


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_cannot_be_read_speaks_against_no_node(fake: Fake, body: bytes) -> None:
    fake.body = body
    note(asking(fake).look(job()), "prometheus-answer")


@pytest.mark.parametrize("status", [204, 302, 401, 404, 500])
def test_another_status_speaks_against_no_node(fake: Fake, status: int) -> None:
    fake.vector(({"instance": "node0"}, "90"))
    fake.status, fake.headers = status, {"Location": f"{fake.url}/elsewhere"}
    if status == 204:
        fake.body = b""
    assert f"status {status}" in note(asking(fake).look(job()), "prometheus-answer")
    assert len(fake.asked) == 1, "no other page was asked"


def test_why_a_query_is_refused_is_told(fake: Fake) -> None:
    fake.status, fake.body = 400, b'{"status":"error","errorType":"bad_data","error":"1:5: parse error\\nmore"}'
    assert "status 400: bad_data: 1:5: parse error" in note(asking(fake).look(job()), "prometheus-answer")


RAW = {
    "no http": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "a shorter body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{}",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 1_000_000,
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
def test_what_is_no_answer_speaks_against_no_node(fake: Fake, raw: bytes) -> None:
    fake.raw = raw
    note(asking(fake).look(job()), "prometheus-answer")


@pytest.mark.parametrize(
    "raw", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], ids=["nothing", "headers", "body"]
)
def test_a_server_that_does_not_come_to_an_end(fake: Fake, raw: bytes) -> None:
    fake.raw = raw
    fake.held.clear()
    begun = time.monotonic()
    assert "no whole answer within 0.3 s" in note(asking(fake, limit=0.3).look(job()), "prometheus-answer")
    assert time.monotonic() - begun < 15


def test_a_compressed_answer_is_not_opened(fake: Fake) -> None:
    fake.vector(({"instance": "node0"}, "90"))
    fake.headers = {"Content-Encoding": "gzip"}
    assert "compressed" in note(asking(fake).look(job()), "prometheus-answer")
    assert fake.asked[0][1]["Accept-Encoding"] == "identity"


def test_a_server_that_drips(fake: Fake) -> None:
    """Each piece comes soon enough; the whole never does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                connection.settimeout(0.01)
                while True:
                    try:
                        if connection.recv(4096) == b"":
                            return
                    except TimeoutError:
                        pass
                    except OSError:
                        return
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        settings = {"server": {"url": f"http://127.0.0.1:{listening.getsockname()[1]}", "limit": 0.5}, "rules": [rule(query="q")]}
        assert "no whole answer" in note(Prometheus(read(PrometheusSettings, settings)).look(job()), "prometheus-answer")
        thread.join(60)
        assert not thread.is_alive(), "the connection was closed"


def test_an_answer_that_is_too_long_is_cut(fake: Fake) -> None:
    fake.vector(({"instance": "node0"}, "90"))
    fake.body += b" " * 10_000_000
    assert "longer than 100000 bytes" in note(asking(fake, most=100_000).look(job()), "prometheus-answer")


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as away:
        port = away.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = {"server": {"url": url}, "rules": [rule(query="q")]}
    assert url in note(Prometheus(read(PrometheusSettings, settings)).look(job()), "prometheus-answer")
    settings = {"exporters": [{"url": f"{url}/metrics?key=s3cret"}], "rules": [rule(sample="x")]}
    assert "s3cret" not in note(Prometheus(read(PrometheusSettings, settings)).look(job()), "prometheus-page")


def test_no_more_is_found_than_is_taken(fake: Fake) -> None:
    nodes = {f"w{number}": f"node{number}" for number in range(MOST + 100)}
    fake.vector(*(({"instance": node}, "90") for node in nodes.values()))
    found = asking(fake).look(job(nodes=nodes))
    assert len(found) == MOST and found[-1].kind == "prometheus-many"


# -- tokens and certificates ------------------------------------------------------------------------------------------


def test_a_token_is_read_anew_each_time(fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "token"
    fake.vector()
    detector = asking(fake, token_file=str(file))
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert detector.look(job()) == []
    assert [headers["Authorization"] for _, headers in fake.asked] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("text", ["", "\n", "two words", "a\r\nX-Other: b", "ü", "x" * 20000])
def test_what_is_no_token_is_not_sent(fake: Fake, tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    detail = note(asking(fake, token_file=str(tmp_path / "token")).look(job()), "prometheus-answer")
    assert detail.endswith("the token file holds no token") and fake.asked == []


def test_a_token_that_is_not_there(fake: Fake, tmp_path: Path) -> None:
    note(asking(fake, token_file=str(tmp_path / "none")).look(job()), "prometheus-answer")
    assert fake.asked == []


def test_tls_with_a_ca_file(tmp_path: Path) -> None:
    for name in ("ours", "other"):
        words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name} -addext"
        files = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.crt")]
        subprocess.run(["openssl", *words.split(), "subjectAltName=IP:127.0.0.1", *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ours.crt", tmp_path / "ours.key")
    made = Fake()
    made.socket = context.wrap_socket(made.socket, server_side=True)
    (tmp_path / "token").write_text("s3cret")
    with serving(made) as fake:
        fake.vector(({"instance": "node0"}, "90"))
        server = {"url": fake.url.replace("http:", "https:"), "token_file": str(tmp_path / "token")}

        def look(**more: str) -> list[Evidence]:
            return Prometheus(read(PrometheusSettings, {"server": {**server, **more}, "rules": [rule(query="q")]})).look(job())

        assert "certificate" in note(look(ca_file=str(tmp_path / "other.crt")), "prometheus-answer").lower()
        assert "certificate" in note(look(), "prometheus-answer").lower()
        assert "CA file" in note(look(ca_file=str(tmp_path / "none.crt")), "prometheus-answer")
        (tmp_path / "empty.crt").write_text("")
        assert "CA file" in note(look(ca_file=str(tmp_path / "empty.crt")), "prometheus-answer")
        assert fake.asked == [], "no token went out"
        assert only(look(ca_file=str(tmp_path / "ours.crt"))).name == "node0"


# -- configuration ----------------------------------------------------------------------------------------------------

SERVER = {"url": "https://prometheus:9090"}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"server": SERVER}, "rules is missing"),
        ({"server": SERVER, "rules": []}, "rules: "),
        ({"server": SERVER, "rules": [rule()]}, "rules.0: give query (of the server) or sample"),
        ({"server": SERVER, "rules": [rule(query="q", sample="s")]}, "rules.0: give query"),
        ({"rules": [rule(query="q")]}, "a rule has a query, and there is no server to ask"),
        ({"rules": [rule(sample="s")]}, "a rule has a sample, and there are no exporters"),
        ({"server": {"url": "https://a?b=c"}, "rules": [rule(query="q")]}, "the URL of a server has nothing behind a ?"),
        ({"server": SERVER, "rules": [rule(query="q"), rule(query="r")]}, "two rules are called hot"),
        ({"server": SERVER, "rules": [rule(query="q", labels={"a": "b"})]}, "rules.0: labels and labels_not are for sample"),
        ({"server": SERVER, "rules": [rule(query="q", part_label="gpu")]}, "rules.0: part_label is for a device or a link"),
        ({"server": SERVER, "rules": [rule(query="q", compare="=")]}, "rules.0.compare: "),
        ({"server": SERVER, "rules": [rule(query="q", number=float("nan"))]}, "rules.0.number: "),
        ({"server": SERVER, "rules": [rule(query="q", severity="lost")]}, "rules.0.severity: "),
        ({"server": SERVER, "rules": [rule(query="q", subject="worker")]}, "rules.0.subject: "),
        ({"server": SERVER, "rules": [rule(query="q", form="x")]}, "there is no 'rules.0.form'"),
        ({"server": SERVER, "rules": [rule(query="q", **{"for": -1})]}, "rules.0.for: "),
        ({"exporters": [SERVER], "rules": [rule(sample="s{}")]}, "rules.0.sample: "),
    ],
)
def test_a_wrong_entry_is_named(found: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as raised:
        read(PrometheusSettings, found)
    assert str(raised.value).startswith(words)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"url": "prometheus:9090"}, "url: a URL begins with http"),
        ({"url": "file:///etc/passwd"}, "url: a URL begins with http"),
        ({"url": "http://"}, "url: a URL begins with http"),
        ({"url": "http://a:b@host"}, "url: a URL holds no user and password"),
        ({"url": "http://host:x"}, "url: this is no URL"),
        ({"url": "http://host/a b"}, "url: a URL has no fragment"),
        ({"url": "http://host/\r\nX: y"}, "url: a URL has no fragment"),
        ({"url": "http://host", "token_file": "/t"}, "a token goes to https:// only"),
        ({"url": "http://host", "ca_file": "/t"}, "ca_file is for https:// only"),
        ({"url": "http://host", "limit": 0}, "limit: "),
        ({"url": "http://host", "password": "s3cret"}, "there is no 'password'"),
    ],
)
def test_a_wrong_server_is_named(found: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as raised:
        read(Server, found)
    assert str(raised.value).startswith(words) and "s3cret" not in str(raised.value)
