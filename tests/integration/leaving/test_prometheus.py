"""Rules against a real Prometheus server that scrapes a real node exporter, and against that exporter's own page.

UNDERSTUDY_PROMETHEUS names the folders, separated by colons, in which `prometheus` and `prometheus-node-exporter` are, if not on the PATH.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from typing import Any

import pytest
from tests.integration.processes import LIMIT, wait_until
from tests.message_texts import has

from understudy.detectors.base import Evidence, JobView, Severity, Subject
from understudy.detectors.configuration import read
from understudy.detectors.prometheus import Prometheus, PrometheusSettings
from understudy.messages import prometheus

WHERE = os.pathsep.join(filter(None, [os.environ.get("UNDERSTUDY_PROMETHEUS", ""), os.environ.get("PATH", os.defpath)]))
SERVER, EXPORTER = shutil.which("prometheus", path=WHERE), shutil.which("prometheus-node-exporter", path=WHERE)
MISSING = [name for name, found in (("prometheus", SERVER), ("prometheus-node-exporter", EXPORTER)) if found is None]

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"no {' and no '.join(MISSING)} on the PATH or in UNDERSTUDY_PROMETHEUS (Debian has packages of these names)"
)


@dataclass
class Running:
    process: Popen[bytes]
    url: str


@contextlib.contextmanager
def started(folder: Path, name: str, command: list[str]) -> Iterator[Running]:
    """A program that listens on a port of loopback that the system has chosen, and logs which one."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = Popen(command, stdin=DEVNULL, stdout=out, stderr=STDOUT, cwd=folder)
    try:
        ports: list[str] = []

        def listens() -> bool:
            assert process.poll() is None, log.read_text()
            ports[:] = re.findall(r"127\.0\.0\.1:([1-9]\d*)", log.read_text())
            return bool(ports)

        wait_until(listens, f"{name} says where it listens")
        yield Running(process, f"http://127.0.0.1:{ports[0]}")
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(LIMIT)
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("exporter")
    (folder / "gpu.prom").write_text('fake_gpu_xid{gpu="3",Hostname="node1"} 79\nfake_gpu_xid{gpu="0",Hostname="node1"} 0\n')
    collectors = ["--collector.disable-defaults", "--collector.loadavg", "--collector.textfile", f"--collector.textfile.directory={folder}"]
    with started(folder, "exporter", [str(EXPORTER), "--web.listen-address=127.0.0.1:0", *collectors]) as running:
        yield running


@pytest.fixture(scope="module")
def server(exporter: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    target = exporter.url.removeprefix("http://")
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        f"scrape_configs: [{{job_name: node, scrape_interval: 200ms, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    command = [str(SERVER), "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"]
    with started(folder, "server", command) as running:
        one = detector({"server": {"url": running.url}, "rules": [rule(query="fake_gpu_xid")]})
        wait_until(lambda: any(found.severity is Severity.SUSPECT for found in one.look(job())), "the server has scraped the exporter")
        yield running


def rule(**more: Any) -> dict[str, Any]:
    return {"name": "xid", "subject": "device", "compare": "!=", "number": 0, "kind": "xid", **more}


def detector(found: dict[str, Any]) -> Prometheus:
    return Prometheus(read(PrometheusSettings, found))


def job(*nodes: str) -> JobView:
    names = nodes or ("node0", "node1")
    return JobView(time.time(), {}, (), {f"w{number}": node for number, node in enumerate(names)})


def device(found: list[Evidence]) -> tuple[Subject, str, str, Severity, str]:
    assert len(found) == 1, found
    return found[0].subject, found[0].name, found[0].part, found[0].severity, found[0].kind


WANTED = (Subject.DEVICE, "node1", "gpu3", Severity.SUSPECT, "xid")


def test_a_query(server: Running) -> None:
    assert device(detector({"server": {"url": server.url}, "rules": [rule(query='fake_gpu_xid{job="node"}')]}).look(job())) == WANTED


def test_a_sample_of_the_page(exporter: Running) -> None:
    one = detector({"exporters": [{"url": f"{exporter.url}/metrics"}], "rules": [rule(sample="fake_gpu_xid", labels={"gpu": "3"})]})
    assert device(one.look(job())) == WANTED


def test_the_instance_is_called_alike_on_both_ways(server: Running, exporter: Running) -> None:
    load = {"name": "load", "compare": ">=", "number": 0, "kind": "load", "severity": "note"}
    found = {"nodes": {exporter.url.removeprefix("http://"): "node0"}}
    asked = detector({**found, "server": {"url": server.url}, "rules": [{**load, "query": "node_load1"}]}).look(job())
    page = detector({**found, "exporters": [{"url": f"{exporter.url}/metrics"}], "rules": [{**load, "sample": "node_load1"}]}).look(job())
    assert [(one.name, one.subject) for one in (*asked, *page)] == [("node0", Subject.NODE)] * 2


def test_a_query_that_is_wrong_or_gives_no_series(server: Running) -> None:
    for query, message in (("sum(", prometheus.BAD_STATUS), ("1", prometheus.NO_VECTOR), ("sum(fake_gpu_xid)", prometheus.NO_NODE)):
        (note,) = detector({"server": {"url": server.url}, "rules": [rule(query=query)]}).look(job())
        assert has(note.detail, message) and (note.severity, note.name) == (Severity.NOTE, "")


def test_the_exporter_is_seen_to_be_down(exporter: Running, tmp_path: Path) -> None:
    """By a rule about `up`, which speaks against the node; the exporter's own page, which is then not there, does not."""
    with started(tmp_path, "other", [str(EXPORTER), "--web.listen-address=127.0.0.1:0", "--collector.disable-defaults"]) as other:
        (tmp_path / "prometheus.yml").write_text(
            f"scrape_configs: [{{job_name: node, scrape_interval: 200ms, scrape_timeout: 200ms, static_configs: "
            f"[{{targets: ['{other.url.removeprefix('http://')}']}}]}}]\n"
        )
        command = [str(SERVER), "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"]
        with started(tmp_path, "server", command) as server:
            down = {"name": "down", "query": "up", "compare": "==", "number": 0, "kind": "exporter-down"}
            one = detector({"server": {"url": server.url}, "rules": [down], "nodes": {"127.0.0.1": "node0"}})
            up = detector({"server": {"url": server.url}, "rules": [{**down, "number": 1}], "nodes": {"127.0.0.1": "node0"}})
            wait_until(lambda: up.look(job()), "it is scraped")
            assert one.look(job()) == []
            other.process.terminate()
            other.process.wait(LIMIT)
            wait_until(lambda: [found.name for found in one.look(job())] == ["node0"], "it is seen to be down")
            page = detector({"exporters": [{"url": other.url}], "rules": [rule(sample="fake_gpu_xid")]})
            assert [(found.severity, found.name) for found in page.look(job())] == [(Severity.NOTE, "")]
        assert [(found.severity, found.name) for found in one.look(job())] == [(Severity.NOTE, "")], "the server is down, too"
