"""Somebody who may tell what speaks against nodes, and nothing else, does: a rank moves, bit by bit as undisturbed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.processes import marked, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG, Outcome


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with marked() as mark:
        made = Service(tmp_path, mark)
        for name in "ab":
            made.start_agent(name, 2)
        made.wait_for_nodes(2)
        yield made


def fires(node: str, status: str = "firing") -> dict[str, Any]:
    now = datetime.now(UTC).isoformat()
    labels = {"alertname": "GPUHot", "severity": "critical", "Hostname": node, "gpu": "0"}
    ends = now if status == "resolved" else "0001-01-01T00:00:00Z"
    alert = {"status": status, "labels": labels, "annotations": {"summary": "91 degrees"}, "startsAt": now, "endsAt": ends}
    return {"version": "4", "groupKey": "{}", "receiver": "understudy", "status": status, "alerts": [alert], "externalURL": "http://am"}


def test_an_alert_moves_a_rank_and_is_resolved(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    policy = service.folder / "policy.toml"
    policy.write_text(
        '[trust]\ncheck = false\n[[rule]]\nname = "alerts"\ndetector = "alertmanager:*"\nseverity = ["suspect"]\naction = "leave"'
    )
    job = service.held("job", "--policy", str(policy))
    node = job.node_of(1)
    secret = service.folder / "secret"
    secret.write_text("the secret of this test's service")
    made = service.command("token", "--token-file", str(secret), "--role", "evidence")
    assert made.returncode == 0, made
    token = made.stdout.strip()
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
        for what in ("jobs/job/status", "jobs/job/report", "nodes", "jobs/job/events"):
            assert client.get(f"/v1/{what}").status_code == 403, what
        for what in ("migrate", "taint", "stop", "drain"):
            assert client.post(f"/v1/jobs/job/{what}", json={}).status_code == 403, what
        assert client.post("/v1/jobs", json={}).status_code == 403
        assert client.post(f"/v1/nodes/{node}/drain", json={}).status_code == 403
        nobody = client.post("/v1/evidence", json=[{"node": "nowhere", "source": "site", "kind": "hot"}])
        assert nobody.status_code == 409 and "there is no node 'nowhere' here" in nobody.text
        strange = client.post("/v1/evidence/alertmanager", json=fires("nowhere")).json()
        assert strange == [{"node": "", "jobs": [], "why_not": "alert GPUHot: no node is known by Hostname=nowhere"}]
        for _ in range(3):  # Alertmanager repeats itself
            answer = client.post("/v1/evidence/alertmanager", json=fires(node))
            assert (answer.status_code, answer.json()) == (200, [{"node": node, "jobs": ["job"], "why_not": ""}])
        job.wait_for_pause()
        assert job.status()["taints"] == {node: "91 degrees (alertmanager:gpuhot), by rule 'alerts'"}
        assert [line["taint"] for line in service.ask("nodes") if line["node"] == node] != [""], "no new jobs go there"
        job.let("let go")
        job.wait_until(lambda status: all(rank["node"] != node for rank in status["ranks"]), "no rank on that node")
        assert client.post("/v1/evidence/alertmanager", json=fires(node, "resolved")).status_code == 200
        job.wait_until(lambda status: status["taints"] == {}, "it is over")
        assert [line["taint"] for line in service.ask("nodes") if line["node"] == node] == [""]
        note = [{"node": node, "source": "site", "kind": "dust", "severity": "note", "detail": "dusty", "happened": time.time()}]
        assert client.post("/v1/evidence", json=note).json() == [{"node": node, "jobs": ["job"], "why_not": ""}]
        wait_until(lambda: f"node {node}: dusty (webhook:site)" in job.output, "the note", LONG)
    (incident,) = job.ends_like(undisturbed_spread(2)).incidents
    assert incident["ranks"][0]["detail"] == f"node {node} is tainted: 91 degrees (alertmanager:gpuhot), by rule 'alerts'"


@pytest.mark.whole
def test_a_token_of_one_job_speaks_of_that_job_only(service: Service) -> None:
    for name in ("first", "second"):
        job = service.run(name, ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "0", "--drill", "off"], "spread.py", WAIT="1")
        job.wait_for_state("training")
    secret = service.folder / "secret"
    secret.write_text("the secret of this test's service")
    token = service.command("token", "--token-file", str(secret), "--role", "evidence", "--job", "first").stdout.strip()
    told = [{"node": "a", "source": "site", "kind": "hot"}]
    answer = httpx.post(f"{service.url}/v1/evidence", json=told, headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert answer.json() == [{"node": "a", "jobs": ["first"], "why_not": ""}]
    wait_until(lambda: "a" in service.ask("status", "--job", "first")["taints"], "the taint", LONG)
    assert service.ask("status", "--job", "second")["taints"] == {}
    for name in ("first", "second"):
        (service.folder / name / "end").touch()
