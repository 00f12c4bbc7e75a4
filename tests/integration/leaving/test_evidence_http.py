"""Evidence over HTTP moves a rank, with the same bits as without; an alert comes and goes: by hand, and from a real Alertmanager.

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
from tests.integration.leaving.test_prometheus import WHERE, started
from tests.integration.processes import marked, wait_until
from tests.integration.service import TOKEN, Service
from tests.integration.training import LONG, Outcome, Started, Training
from tests.message_texts import has

from understudy.messages import alertmanager as alerts
from understudy.messages import http_requests, policies, service_jobs
from understudy.orchestrator.evidence_models import EvidenceItem
from understudy.orchestrator.security import Access, Role


def by_rule(rule: str) -> str:
    return policies.DECIDED(detail=alerts.ALERT(summary="Xid 79"), detector="alertmanager:GpuXid", rule=rule)


ALERTMANAGER = shutil.which("prometheus-alertmanager", path=WHERE)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "operate" / "detectors-and-policy.md"
(CONFIGURATION,) = re.findall(r"```yaml\n(route:.*?)```", PAGE.read_text(), re.DOTALL)
URL, FILE = "http://10.0.0.5:29400", "/etc/alertmanager/understudy-token"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with marked() as mark:
        made = Service(tmp_path, mark)
        made.start_nodes("ab", 2)
        yield made


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


NEVER = "0001-01-01T00:00:00Z"  # Alertmanager's value where there is no time


def client(service: Service, token: str) -> httpx.Client:
    return httpx.Client(base_url=service.url, headers=bearer(token), timeout=LONG, trust_env=False)


def made(service: Service, *flags: str) -> str:
    """A token of the role `evidence`, as an operator makes it."""
    secret = service.folder / "secret"
    secret.write_text(TOKEN)
    done = service.command("token", "--token-file", str(secret), "--role", "evidence", *flags)
    assert done.returncode == 0, done
    return done.stdout.strip()


def group(status: str, since: str, ends: str = NEVER, **labels: str) -> dict[str, Any]:
    """As Alertmanager sends it, with one alert."""
    labels = {"alertname": "GpuXid", "severity": "critical", "gpu": "0", **labels}
    alert = {"status": status, "labels": labels, "annotations": {"summary": "Xid 79"}, "startsAt": since, "endsAt": ends}
    return {"version": "4", "groupKey": "{}", "truncatedAlerts": 0, "status": status, "receiver": "understudy", "alerts": [alert]}


def now() -> str:
    return datetime.now(UTC).isoformat()


def test_an_alert_moves_a_rank_and_is_resolved(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """Sent with a token that permits nothing else; the job's policy decides what follows."""
    policy = service.folder / "policy.toml"
    policy.write_text(
        '[trust]\ncheck = false\n[[rule]]\nname = "alerts"\ndetector = "alertmanager:*"\nseverity = ["suspect"]\naction = "leave"'
    )
    job = service.held("job", "--policy", str(policy))
    node = job.node_of(1)
    heard, since = {"node": node, "detector": "alertmanager:GpuXid", "jobs": ["job"], "refused": ""}, now()
    with client(service, made(service)) as http:
        for what in ("jobs/job/status", "jobs/job/report", "nodes", "jobs/job/events"):
            assert http.get(f"/v1/{what}").status_code == 403, what
        for what in ("migrate", "taint", "stop", "drain"):
            assert http.post(f"/v1/jobs/job/{what}", json={}).status_code == 403, what
        assert http.post("/v1/jobs", json={}).status_code == 403
        assert http.post(f"/v1/nodes/{node}/drain", json={}).status_code == 403
        unknown = http.post("/v1/evidence", json=[{"node": "nowhere", "source": "site", "kind": "hot"}])
        assert unknown.status_code == 409 and has(unknown.text, alerts.UNKNOWN_NODE, name="nowhere")
        (strange,) = http.post("/v1/evidence/alertmanager", json=group("firing", since, Hostname="nowhere")).json()
        assert strange["node"] == "" and has(strange["refused"], alerts.UNKNOWN_NODE, name="nowhere")
        for _ in range(3):  # Alertmanager repeats itself
            answer = http.post("/v1/evidence/alertmanager", json=group("firing", since, Hostname=node))
            assert (answer.status_code, answer.json()) == (200, [heard])
        job.wait_for_pause()
        assert job.status()["taints"] == {node: by_rule("alerts")}
        assert len(job.status()["evidence"]) == 1, "it counts once"
        assert [line["taint"] for line in service.ask("nodes") if line["node"] == node] != [""], "no new jobs go there"
        job.let("let go")
        job.wait_until(lambda status: all(rank["node"] != node for rank in status["ranks"]), "no rank on that node")
        assert http.post("/v1/evidence/alertmanager", json=group("resolved", since, now(), Hostname=node)).status_code == 200
        job.wait_until(lambda status: status["taints"] == {}, "it is over")
        assert [line["taint"] for line in service.ask("nodes") if line["node"] == node] == [""]
        note = [{"node": node, "source": "site", "kind": "dust", "severity": "note", "detail": "dusty", "happened": time.time()}]
        assert http.post("/v1/evidence", json=note).json() == [{**heard, "detector": "webhook:site"}]
        wait_until(lambda: has(job.output, service_jobs.NOTED, about=f"node {node}"), "the note", LONG)
        assert has(job.output, policies.NO_RULE, detail="dusty", detector="webhook:site")
    (incident,) = job.ends_like(undisturbed_spread(2)).incidents
    assert (incident["planned"], incident["cause"], incident["rank"]) == (True, "migrated", 1)
    assert incident["ranks"][0]["detail"].endswith(by_rule("alerts"))


def test_a_token_of_one_job_speaks_of_that_job_only(service: Service) -> None:
    """Nor does it keep new jobs away; the job's own policy decides what follows: its rank leaves."""
    jobs = {}
    for name in ("first", "second"):
        jobs[name] = service.run(name, ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "0", "--drill", "off"], "spread.py", WAIT="1")
        jobs[name].wait_for_state("training")
    item = {"node": "a", "part": "gpu0", "source": "burn-in", "kind": "slow", "detail": "matmul at 61 %"}
    with client(service, made(service, "--job", "first")) as http:
        answer = http.post("/v1/evidence", json=[item, {**item, "node": "c"}])
        assert answer.status_code == 200, answer.text
        assert [(one["jobs"], bool(one["refused"])) for one in answer.json()] == [(["first"], False), ([], True)]
    rule = "a node or a part of it that is suspected"
    why = policies.DECIDED(detail="matmul at 61 %", detector="webhook:burn-in", rule=rule)
    jobs["first"].wait_until(lambda status: status["taints"] == {"a": why}, "the taint")
    assert jobs["second"].status()["taints"] == {} and jobs["second"].status()["evidence"] == []
    for job in jobs.values():
        job.let("end")


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
    """The events of the job's orchestrator."""

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


WHY = by_rule("a node or a part of it that is suspected")


def test_an_alert_reaches_a_job_without_a_service(job: Started) -> None:
    """In Alertmanager's format, by a token of this job."""
    watched = Watched(job)
    node, since = watched.node(), now()
    token = watched.access.token(Role.EVIDENCE, str(watched.status()["job"]))

    def send(status: str, ends: str = NEVER, **labels: str) -> list[dict[str, Any]]:
        body = group(status, since, ends, **{"Hostname": node, **labels})
        answer = httpx.post(f"{watched.url}/v1/evidence/alertmanager", json=body, headers=bearer(token), timeout=LONG)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    assert has(send("firing", Hostname="elsewhere")[0]["refused"], alerts.UNKNOWN_NODE, name="elsewhere")
    for _ in range(2):
        assert send("firing") == [{"node": node, "detector": "alertmanager:GpuXid", "jobs": [watched.status()["job"]], "refused": ""}]
        wait_until(lambda: watched.taints() == {node: WHY}, "the taint", LONG)
    assert job.output.count(WHY) == 1, "reported once"
    send("resolved", now())
    wait_until(lambda: watched.taints() == {}, "the node is trusted again", LONG)


def test_the_page_s_examples_are_of_these_routes() -> None:
    (reported,) = re.findall(rf"{URL}/v1/evidence -d '\s*(\[.*?\])'", PAGE.read_text(), re.DOTALL)
    (item,) = [EvidenceItem.model_validate(item) for item in json.loads(reported)]
    assert (item.node, item.part, item.lasts) == ("gpu-07", "gpu3", 86400)
    assert f"- url: {URL}/v1/evidence/alertmanager\n" in CONFIGURATION
    assert f"credentials_file: {FILE}\n" in CONFIGURATION


@pytest.mark.skipif(
    ALERTMANAGER is None, reason="no prometheus-alertmanager on the PATH or in UNDERSTUDY_PROMETHEUS (Debian has a package of this name)"
)
def test_a_real_alertmanager_sends_an_alert(job: Started, tmp_path: Path) -> None:
    """With the configuration from the page, except for the places and the waiting times."""
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
    assert has(job.output, http_requests.ALERT_GOES_NOWHERE, alert="GpuXid") and has(job.output, alerts.UNKNOWN_NODE, name="elsewhere")
