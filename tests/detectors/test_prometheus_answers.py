"""Servers that are down, slow or hostile speak against no node, and tokens go where they should."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.detectors.prometheus_fake import NOW, Fake, asking, job, note, only, rule, serving
from tests.message_texts import has

from understudy.detectors.base import Evidence
from understudy.detectors.configuration import read
from understudy.detectors.prometheus import MOST, Prometheus, PrometheusSettings
from understudy.detectors.prometheus_answers import MOST_SERIES
from understudy.messages import prometheus


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(Fake()) as made:
        yield made


# -- servers that are down, slow or hostile ---------------------------------------------------------------------------

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
    assert has(note(asking(fake).look(job()), "prometheus-answer"), prometheus.BAD_STATUS, status=status)
    assert len(fake.asked) == 1, "no other page was asked"


def test_the_reason_for_a_refused_query_is_reported(fake: Fake) -> None:
    fake.status, fake.body = 400, b'{"status":"error","errorType":"bad_data","error":"1:5: parse error\\nmore"}'
    assert has(
        note(asking(fake).look(job()), "prometheus-answer"), prometheus.BAD_STATUS, status=400, reason=": bad_data: 1:5: parse error"
    )


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
    assert has(note(asking(fake, limit=0.3).look(job()), "prometheus-answer"), prometheus.TOO_SLOW, seconds=0.3)
    assert time.monotonic() - begun < 60


def test_a_compressed_answer_is_not_opened(fake: Fake) -> None:
    fake.vector(({"instance": "node0"}, "90"))
    fake.headers = {"Content-Encoding": "gzip"}
    assert has(note(asking(fake).look(job()), "prometheus-answer"), prometheus.COMPRESSED)
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
        assert has(note(Prometheus(read(PrometheusSettings, settings)).look(job()), "prometheus-answer"), prometheus.TOO_SLOW)
        thread.join(60)
        assert not thread.is_alive(), "the connection was closed"


def test_an_answer_that_is_too_long_is_cut(fake: Fake) -> None:
    fake.vector(({"instance": "node0"}, "90"))
    fake.body += b" " * 10_000_000
    assert has(note(asking(fake, most=100_000).look(job()), "prometheus-answer"), prometheus.TOO_LONG, most=100_000)


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as away:
        port = away.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = {"server": {"url": url}, "rules": [rule(query="q")]}
    assert has(note(Prometheus(read(PrometheusSettings, settings)).look(job()), "prometheus-answer"), prometheus.NO_ANSWER, server=url)
    settings = {"exporters": [{"url": f"{url}/metrics?key=s3cret"}], "rules": [rule(sample="x")]}
    assert "s3cret" not in note(Prometheus(read(PrometheusSettings, settings)).look(job()), "prometheus-page")


def test_no_more_is_found_than_is_taken(fake: Fake) -> None:
    nodes = {f"w{number}": f"node{number}" for number in range(MOST + 100)}
    fake.vector(*(({"instance": node}, "90") for node in nodes.values()))
    found = asking(fake).look(job(nodes=nodes))
    assert len(found) == MOST and found[-1].kind == "prometheus-many"


# -- tokens and certificates ------------------------------------------------------------------------------------------


def test_a_token_is_read_again_each_time(fake: Fake, tmp_path: Path) -> None:
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
    assert has(detail, prometheus.NO_TOKEN) and fake.asked == []


def test_a_token_that_is_not_there(fake: Fake, tmp_path: Path) -> None:
    assert has(note(asking(fake, token_file=str(tmp_path / "none")).look(job()), "prometheus-answer"), prometheus.BAD_TOKEN_FILE)
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
        assert has(note(look(ca_file=str(tmp_path / "none.crt")), "prometheus-answer"), prometheus.BAD_CA_FILE)
        (tmp_path / "empty.crt").write_text("")
        assert has(note(look(ca_file=str(tmp_path / "empty.crt")), "prometheus-answer"), prometheus.BAD_CA_FILE)
        assert fake.asked == [], "no token went out"
        assert only(look(ca_file=str(tmp_path / "ours.crt"))).name == "node0"
