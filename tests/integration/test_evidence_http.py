"""What is told over HTTP moves a rank, bit by bit the same as without; an alert comes and goes: by hand, and from a real Alertmanager.

UNDERSTUDY_PROMETHEUS names the folders, separated by colons, in which `prometheus-alertmanager` is, if not on the PATH. Debian's reads its
templates from where its package is installed: one that is only unpacked needs /usr/share/prometheus, too.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.processes import marked, wait_until
from tests.integration.service import TOKEN, Service
from tests.integration.test_evidence import held
from tests.integration.test_prometheus import WHERE, started
from tests.integration.training import LONG, Outcome, Started, Training

from understudy.orchestrator.security import Access, Role

ALERTMANAGER = shutil.which("prometheus-alertmanager", path=WHERE)
OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
(CONFIGURATION,) = re.findall(r"```yaml\n(route:.*?)```", OPERATIONS.read_text(), re.DOTALL)
URL, FILE = "http://10.0.0.5:29400", "/etc/alertmanager/understudy-token"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with marked() as mark:
        made = Service(tmp_path, mark)
        for name in "ab":
            made.start_agent(name, 2)
        made.wait_for_nodes(2)
        yield made


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_rank_leaves_a_node_that_is_told_of(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """By a token that opens nothing else."""
    job, node = held(service)
    headers = bearer(Access([TOKEN]).token(Role.EVIDENCE, "job"))
    for method, path, body in (
        ("GET", "/v1/jobs/job/status", None),
        ("GET", "/v1/nodes", None),
        ("POST", "/v1/jobs/job/migrate", {"rank": 1}),
        ("POST", "/v1/jobs/job/taint", {"node": node, "reason": "x"}),
        ("POST", "/v1/jobs/job/stop", {}),
    ):
        assert httpx.request(method, service.url + path, json=body, headers=headers, timeout=LONG).status_code == 403, path
    item = {"node": node, "part": "gpu0", "source": "burn-in", "kind": "slow", "severity": "suspect", "detail": "matmul at 61 %"}
    answer = httpx.post(f"{service.url}/v1/evidence", json=[item, {**item, "node": "c"}], headers=headers, timeout=LONG)
    assert answer.status_code == 200, answer.text
    assert [(one["jobs"], bool(one["refused"])) for one in answer.json()] == [(["job"], False), ([], True)]
    wait_until(lambda: job.status()["state"] == "recovering", "a spare that has set up, and the pause", LONG)
    assert job.status()["taints"] == {node: "matmul at 61 % (webhook:burn-in), by rule 'a node or a part of it that is suspected'"}
    job.let("let go")
    wait_until(lambda: all(rank["node"] != node for rank in job.status()["ranks"]), "no rank on that node", LONG)
    job.let("end")
    ended = job.ends()
    assert ended.code == 0, ended.output
    assert ended.record == undisturbed_spread(2).record
    (incident,) = ended.ask("report")["incidents"]
    assert (incident["planned"], incident["cause"], incident["rank"]) == (True, "migrated", 1)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Started]:
    """Of one node, so that nothing moves, which waits in a step."""
    with marked() as mark:
        started = Training(tmp_path, mark).begin("spread.py", HELD="1:6")

        def waits() -> bool:
            assert started.process.poll() is None, started.output
            return (started.folder / "marker held 6").exists()

        wait_until(waits, "the job is in its step 6", LONG)
        yield started
        (started.folder / "let go").touch()
        outcome = started.ends()
        assert outcome.code == 0, outcome.output


class Watched:
    """What the orchestrator of the job says."""

    def __init__(self, job: Started) -> None:
        run = job.folder / "run"
        self.url = json.loads((run / "orchestrator.json").read_text())["url"]
        self.access = Access([(run / "token").read_text().strip()])
        self._headers = bearer(self.access.token(Role.READ))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}/v1/jobs/-/status", headers=self._headers, timeout=LONG).json()
        return found

    def taints(self) -> dict[str, str]:
        found: dict[str, str] = self.status()["taints"]
        return found

    def node(self) -> str:
        return str(self.status()["ranks"][0]["node"])


WHY = "Xid 79 (alertmanager:GpuXid), by rule 'a node or a part of it that is suspected'"


def test_an_alert_fires_and_is_resolved(job: Started) -> None:
    """In Alertmanager's format, by a token of this job."""
    watched = Watched(job)
    node, since = watched.node(), datetime.now(UTC).isoformat()
    token = watched.access.token(Role.EVIDENCE, str(watched.status()["job"]))

    def send(status: str, ends: str = "0001-01-01T00:00:00Z", **labels: str) -> list[dict[str, Any]]:
        labels = {"alertname": "GpuXid", "severity": "critical", "Hostname": node, "gpu": "0", **labels}
        alert = {"status": status, "labels": labels, "annotations": {"summary": "Xid 79"}, "startsAt": since, "endsAt": ends}
        body = {"version": "4", "groupKey": "{}", "truncatedAlerts": 0, "status": status, "receiver": "understudy", "alerts": [alert]}
        answer = httpx.post(f"{watched.url}/v1/evidence/alertmanager", json=body, headers=bearer(token), timeout=LONG)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    assert send("firing", Hostname="elsewhere")[0]["refused"] == "no node here is called 'elsewhere' (label Hostname)"
    for _ in range(2):
        assert send("firing") == [{"node": node, "detector": "alertmanager:GpuXid", "jobs": [watched.status()["job"]], "refused": ""}]
        wait_until(lambda: watched.taints() == {node: WHY}, "the taint", LONG)
    assert job.output.count("is tainted: Xid 79") == 1, "told once"
    send("resolved", datetime.now(UTC).isoformat())
    wait_until(lambda: watched.taints() == {}, "the node is trusted again", LONG)


def test_the_page_s_configuration_is_of_these_routes() -> None:
    assert f"- url: {URL}/v1/evidence/alertmanager\n" in CONFIGURATION
    assert f"credentials_file: {FILE}\n" in CONFIGURATION


@pytest.mark.skipif(
    ALERTMANAGER is None, reason="no prometheus-alertmanager on the PATH or in UNDERSTUDY_PROMETHEUS (Debian has a package of this name)"
)
def test_a_real_alertmanager_sends_an_alert(job: Started, tmp_path: Path) -> None:
    """With the configuration that stands in the page, but for the places and the time that it waits."""
    watched = Watched(job)
    token = tmp_path / "understudy-token"
    token.write_text(watched.access.token(Role.EVIDENCE) + "\n")
    text = CONFIGURATION.replace(URL, watched.url).replace(FILE, str(token))
    text = re.sub(r"group_wait: \w+", "group_wait: 10ms", re.sub(r"group_interval: \w+", "group_interval: 200ms", text))
    (tmp_path / "alertmanager.yml").write_text(text)
    command = [str(ALERTMANAGER), "--config.file=alertmanager.yml", "--storage.path=data", "--cluster.listen-address="]
    with started(tmp_path, "alertmanager", [*command, "--web.listen-address=127.0.0.1:0"]) as alertmanager:

        def post(instance: str, ends: float | None = None) -> None:
            labels = {"alertname": "GpuXid", "severity": "critical", "gpu": "0", "instance": instance}
            alert = {"labels": labels, "annotations": {"summary": "Xid 79"}, "startsAt": began.isoformat()}
            if ends is not None:
                alert["endsAt"] = datetime.fromtimestamp(ends, UTC).isoformat()
            answer = httpx.post(f"{alertmanager.url}/api/v2/alerts", json=[alert], timeout=LONG)
            assert answer.status_code == 200, answer.text

        began, node = datetime.now(UTC), watched.node()
        post("elsewhere:9400")
        post(f"{node}:9400")
        wait_until(lambda: watched.taints() == {node: WHY}, "the alert has come", LONG)
        post(f"{node}:9400", time.time())
        wait_until(lambda: watched.taints() == {}, "that it is over has come", LONG)
        log = (tmp_path / "alertmanager.log").read_text()
        assert "level=error" not in log and "level=warn" not in log, log
    assert "the alert GpuXid of Alertmanager goes nowhere: no node here is called 'elsewhere'" in job.output
