"""Evidence against nodes over HTTP: who may report it, for which jobs, and its effect."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.detectors.test_alertmanager import alert, message
from tests.message_texts import codes, has

from understudy.common.names import JOURNAL
from understudy.core.events import Event, NodeJoined, Observed
from understudy.core.model import JobSpec, Timeouts
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.labels import KnownNodes
from understudy.links.messages import Hello
from understudy.messages import alertmanager, http_requests, policies
from understudy.orchestrator import evidence_routes, limits
from understudy.orchestrator import service as service_module
from understudy.orchestrator.api import create_app
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.detection import MOST, SHARE
from understudy.orchestrator.evidence_models import EvidenceItem
from understudy.orchestrator.evidence_routes import PER_MINUTE
from understudy.orchestrator.jobs import Jobs, ServedJob
from understudy.orchestrator.journal import Journal
from understudy.orchestrator.nodes import SUSPICIONS, Node
from understudy.orchestrator.security import Access, Role
from understudy.orchestrator.settings import Settings

ACCESS = Access(["the secret of this test's orchestrator"])
ITEM: dict[str, Any] = {"node": "n0", "source": "thermometer", "kind": "hot", "severity": "suspect", "detail": "91 degrees"}


@dataclass
class Served:
    """An orchestrator with the jobs `a` on the nodes n0 and n1 and `b` on n1 and n2."""

    jobs: Jobs
    cluster: Cluster | None
    client: httpx.AsyncClient
    reported: list[str]

    async def post(self, body: Any, token: str = "", path: str = "/v1/evidence", **parameters: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or ACCESS.token(Role.EVIDENCE)}", "Content-Type": "application/json"}
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        return await self.client.post(path, content=content, headers=headers, params=parameters)

    async def alerts(self, *alerts: dict[str, Any], token: str = "", **parameters: Any) -> list[dict[str, Any]]:
        answer = await self.post(message(*alerts), token, "/v1/evidence/alertmanager", **parameters)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def taints(self, name: str) -> dict[str, list[tuple[str, str]]]:
        """Return the sources and parts of the taints of a job's nodes, after its evidence was evaluated."""
        service = self.job(name).service
        service.look()
        return {node.name: list(node.taints) for node in service.machine.state.nodes.values() if node.taints}

    def job(self, name: str) -> ServedJob:
        found = self.jobs.get(name)
        assert found is not None
        return found


@contextlib.asynccontextmanager
async def serving(folder: Path, *, service: bool) -> AsyncIterator[Served]:
    reported: list[str] = []
    journal = Journal(folder / JOURNAL, reported.append)
    journal.start()
    jobs = Jobs(journal, reported.append)
    cluster = Cluster(jobs, folder, ACCESS, reported.append, Timeouts(node_lost=200.0)) if service else None
    for name, nodes in (("a", ("n0", "n1")), ("b", ("n1", "n2"))):
        served = jobs.begin(Settings(JobSpec(name, 2, 1, nodes=2), Timeouts(node_lost=200.0)))
        for rank, node in enumerate(nodes):
            served.service.attach(NodeJoined(node, f"10.0.0.{node[1:]}", rank))
    if cluster is not None:
        for node in ("n0", "n1", "n2", "n9"):
            cluster.attach(Hello(node, f"10.0.0.{node[1:]}", 4, "", {}, ()))
    transport = httpx.ASGITransport(create_app(jobs, ACCESS, cluster), client=("192.0.2.7", 1))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield Served(jobs, cluster, client, reported)
    finally:
        for one in jobs.all():
            one.running.cancel()
        await asyncio.gather(*(one.running for one in jobs.all()), return_exceptions=True)
        journal.close()


@pytest.fixture
def within(tmp_path: Path) -> Callable[..., None]:
    def run(check: Callable[[Served], Coroutine[Any, Any, None]], *, service: bool = True) -> None:
        async def whole() -> None:
            async with serving(tmp_path, service=service) as served:
                await check(served)

        asyncio.run(whole())

    return run


@pytest.mark.parametrize("service", [False, True])
def test_it_goes_to_the_jobs_that_have_the_node(within: Callable[..., None], service: bool) -> None:
    async def check(served: Served) -> None:
        answer = await served.post([{**ITEM, "node": "n1", "part": "gpu3"}, {**ITEM, "node": "nobody"}, {**ITEM, "severity": "note"}])
        assert answer.status_code == 200, answer.text
        assert [(one["node"], one["jobs"], one["detector"]) for one in answer.json()] == [
            ("n1", ["a", "b"], "webhook:thermometer"),
            ("", [], ""),
            ("n0", ["a"], "webhook:thermometer"),
        ]
        assert [bool(one["refused"]) for one in answer.json()] == [False, True, False]
        assert served.taints("a") == served.taints("b") == {"n1": [("webhook:thermometer", "gpu3")]}
        none = await served.post([{**ITEM, "node": "nobody"}, {**ITEM, "node": "n\x1b\u202e"}])
        assert none.status_code == 409
        for name in ("nobody", "n\x1b\u202e"):
            assert has(none.json()["detail"], alertmanager.UNKNOWN_NODE, name=name)
        several = await served.post([{**ITEM, "node": f"m{number}"} for number in range(9)])
        assert "'m4'" in several.json()["detail"] and "'m5'" not in several.json()["detail"]

    within(check, service=service)


def test_a_token_of_a_job_reaches_that_job_only(within: Callable[..., None]) -> None:
    """Not the other jobs on the node, and it hears of none of them; nor does it keep new jobs away."""

    async def check(served: Served) -> None:
        assert served.cluster is not None
        token = ACCESS.token(Role.EVIDENCE, "b")
        answer = await served.post([{**ITEM, "node": "n1"}], token)
        assert [one["jobs"] for one in answer.json()] == [["b"]]
        assert served.cluster.nodes["n1"].suspected == {}
        assert (served.taints("a"), list(served.taints("b"))) == ({}, ["n1"])
        assert served.cluster.taint("n1") == ""
        for node in ("n0", "n9"):
            refused = await served.post([{**ITEM, "node": node}], token)
            assert refused.status_code == 409 and served.cluster.nodes[node].suspected == {}
        for one in await served.alerts(alert(node="n0"), alert(node="10.0.0.9"), token=token):
            assert has(one["refused"], alertmanager.UNKNOWN_NODE) and one["node"] == ""
        assert served.taints("a") == {}

    within(check)


def test_a_node_of_a_service_without_a_job(within: Callable[..., None]) -> None:
    async def check(served: Served) -> None:
        assert served.cluster is not None
        first = (await served.post([{**ITEM, "node": "n9"}])).json()
        assert first == [{"node": "n9", "detector": "webhook:thermometer", "jobs": [], "refused": ""}]
        assert served.cluster.taint("n9") == "91 degrees (webhook:thermometer)"
        note = await served.post([{**ITEM, "node": "n9", "severity": "note"}])
        assert note.status_code == 409 and note.json()["code"] == http_requests.NOTE_GOES_NOWHERE.code
        assert (await served.post([{**ITEM, "node": "n9", "until": time.time() - 1}])).status_code == 200
        assert served.cluster.taint("n9") == "" and served.cluster.nodes["n9"].suspected == {}

    within(check)


def test_what_is_over_takes_no_room() -> None:
    """What is kept of a node is limited, whatever the source."""
    node = Node(Hello("n9", "10.0.0.9", 4, "", {}, ()), None, 0.0)
    hot = Evidence("webhook:site", Subject.NODE, "n9", Severity.SUSPECT, "hot", 90.0)
    for number in range(SUSPICIONS):
        node.suspect(replace(hot, kind=f"over{number}", until=99.0), 100.0)
        node.suspect(replace(hot, kind=f"short{number}", until=101.0), 100.0)
    assert len(node.suspected) == SUSPICIONS // SHARE
    node.suspect(replace(hot, kind="real"), 102.0)
    assert [kind for _, kind, _ in node.suspected] == ["real"] and node.doubt(102.0) != ""
    for number in range(SUSPICIONS):
        node.suspect(replace(hot, detector=f"d{number}"), 103.0)
    assert len(node.suspected) == SUSPICIONS


def test_roles_that_may_report_evidence(within: Callable[..., None]) -> None:
    async def check(served: Served) -> None:
        for role in Role:
            expected = 200 if role in (Role.EVIDENCE, Role.OPERATE, Role.SUBMIT) else 403
            for body, path in (([ITEM], "/v1/evidence"), (message(alert(node="n0")), "/v1/evidence/alertmanager")):
                assert (await served.post(body, ACCESS.token(role), path)).status_code == expected, (role, path)
        assert (await served.post([ITEM], "wrong")).status_code == 401
        for method, path in (
            ("GET", "/v1/jobs"),
            ("GET", "/v1/nodes"),
            ("GET", "/metrics"),
            ("GET", "/v1/jobs/a/status"),
            ("GET", "/v1/jobs/a/events"),
            ("POST", "/v1/jobs/a/migrate"),
            ("POST", "/v1/jobs/a/taint"),
            ("POST", "/v1/jobs/a/stop"),
            ("POST", "/v1/jobs"),
        ):
            for job in ("", "a"):
                headers = {"Authorization": f"Bearer {ACCESS.token(Role.EVIDENCE, job)}"}
                assert (await served.client.request(method, path, headers=headers)).status_code == 403, (method, path)

    within(check)


def test_an_alert_comes_and_goes(within: Callable[..., None]) -> None:
    """Told again it changes nothing; resolved it takes its taint away, and no other."""

    async def check(served: Served) -> None:
        other = alert(node="n1", alertname="Other")
        fires, over = alert(node="10.0.0.1", gpu="0"), alert("resolved", datetime.now(UTC).isoformat(), node="n1", gpu="0")
        for _ in range(3):
            assert [one["jobs"] for one in await served.alerts(fires, other)] == [["a", "b"]] * 2
            taints = {"n1": [("alertmanager:GpuXid", "gpu0"), ("alertmanager:Other", "")]}
            assert served.taints("a") == served.taints("b") == taints
        assert served.cluster is not None and len(served.cluster.nodes["n1"].suspected) == 2
        for _ in range(2):
            await served.alerts(over)
            assert served.taints("a") == served.taints("b") == {"n1": [("alertmanager:Other", "")]}
            assert len(served.cluster.nodes["n1"].suspected) == 1
        await served.alerts(fires)
        assert len(served.taints("a")["n1"]) == 2, "it fires again"

    within(check)


def test_alerts_without_effect_are_answered_and_reported_once(within: Callable[..., None]) -> None:
    async def check(served: Served) -> None:
        found = await served.alerts(alert(node="nobody"), alert(node="n0"), alert(node="n1", severity="p1"))
        assert [(one["node"], bool(one["refused"])) for one in found] == [("", True), ("n0", False), ("n1", False)]
        assert served.taints("a") == {"n0": [("alertmanager:GpuXid", "")]}
        await served.alerts(alert(node="nobody"))
        assert await served.alerts() == []
        reported = [text for text in served.reported if "Alertmanager" in text]
        assert len(reported) == 1 and has(reported[0], http_requests.ALERT_GOES_NOWHERE, alert="GpuXid")
        assert has(reported[0], alertmanager.UNKNOWN_NODE, name="nobody")
        await served.alerts(alert(node="n1", severity="p1", host="n2"), node_label=["host"], suspect=["p0", "p1"])
        assert served.taints("b") == {"n2": [("alertmanager:GpuXid", "")]}
        wrong = await served.post(message(), path="/v1/evidence/alertmanager", node_lable="host")
        assert (wrong.status_code, wrong.json()["code"]) == (422, http_requests.MALFORMED.code) and "query.node_lable" in wrong.json()[
            "detail"
        ]
        for _ in range(2):
            await served.post(message(truncatedAlerts=3), path="/v1/evidence/alertmanager")
        assert [text for text in served.reported if codes(text) == [http_requests.ALERTS_LEFT_OUT.code]] == [
            http_requests.ALERTS_LEFT_OUT()
        ]
        for number in range(200):
            await served.alerts(alert(node="nobody", alertname=f"A{number}"))
        assert len([text for text in served.reported if "Alertmanager" in text]) == 100

    within(check)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("{", 422, ""),
        ("[" * 100_000, 400, ""),
        (b"\xff\xff", 400, ""),
        ("[" + json.dumps(ITEM)[:-1] + ', "until": ' + "9" * 5000 + "}]", 400, ""),
        ([], 422, "body: "),
        ([ITEM] * 101, 422, "body: "),
        ({**ITEM}, 422, "body: "),
        ([{**ITEM, "trust": True}], 422, "body.0.trust: "),
        ([{**ITEM, "\ud800": True}], 422, ""),
        ([{**ITEM, "until": math.nan}], 422, "body.0.until"),
        ([{**ITEM, "until": math.inf}], 422, "body.0.until"),
        ([{**ITEM, "until": 10**400}], 422, "body.0.until"),
        ([{**ITEM, "for": -1}], 422, "body.0.for"),
        ([{**ITEM, "for": 10**12}], 422, "body.0.for"),
        ([{**ITEM, "for": 5, "until": 5}], 422, http_requests.UNTIL_AND_FOR.code),
        ([{**ITEM, "subject": "node", "part": "gpu3"}], 422, http_requests.NODE_WITH_PART.code),
        ([{**ITEM, "subject": "device"}], 422, http_requests.PART_NEEDED(subject="device")),
        ([{**ITEM, "subject": "link", "part": ""}], 422, http_requests.PART_NEEDED(subject="link")),
        ([{**ITEM, "subject": "worker"}], 422, "body.0.subject"),
        ([{**ITEM, "severity": "lost"}], 422, "body.0.severity"),
        ([{**ITEM, "part": "gpu\n3"}], 422, "body.0.part"),
        ([{**ITEM, "kind": "Hot"}], 422, "body.0.kind"),
        ([{**ITEM, "source": "a:b"}], 422, "body.0.source"),
        ([{**ITEM, "source": "\x1b"}], 422, "body.0.source"),
        ([{**ITEM, "node": "\ud800"}], 422, "body.0.node: "),
        ([{**ITEM, "node": "n" * 1001}], 422, "body.0.node"),
        ([{**ITEM, "detail": "d" * 10_001}], 422, "body.0.detail"),
        ([{**ITEM, "happened": time.time() + 86400}], 409, http_requests.LONG_AGO.code),
        ([{**ITEM, "happened": 5}], 409, http_requests.LONG_AGO.code),
        ([{**ITEM, "until": time.time() + 4e8}], 409, http_requests.UNTIL_TOO_FAR.code),
    ],
)
def test_an_invalid_report_is_answered_and_changes_nothing(within: Callable[..., None], body: Any, status: int, words: str) -> None:
    coded = {400: http_requests.NOT_SERVED, 422: http_requests.MALFORMED}

    async def check(served: Served) -> None:
        answer = await served.post(body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == codes(answer.json()["detail"])[0] == (coded[status].code if status in coded else words)
        assert words in answer.json()["detail"]
        assert served.taints("a") == {}
        assert (await served.post([ITEM])).status_code == 200, "and it serves on"

    within(check)


def test_what_a_person_sees_is_plain(within: Callable[..., None]) -> None:
    async def check(served: Served) -> None:
        await served.post([{**ITEM, "detail": "\n \x1b[31mhot \u202e\nmore"}])
        served.taints("a")
        why = served.job("a").service.machine.state.nodes["n0"].taint
        assert has(why, policies.DECIDED, detail="\\x1b[31mhot \\u202e", detector="webhook:thermometer")

    within(check)


def test_in_our_terms() -> None:
    """What is left out, and what each label becomes."""
    nodes, now = KnownNodes({"gpu-07.a.org": {"10.0.0.7"}}), 1_800_000_000.0

    def seen(**more: Any) -> Evidence | str:
        return EvidenceItem.model_validate({"node": "gpu-07", "source": "site", "kind": "hot", **more}).evidence(nodes, now)

    least = Evidence("webhook:site", Subject.NODE, "gpu-07.a.org", Severity.SUSPECT, "hot", now, "hot")
    assert seen() == seen(node="10.0.0.7") == seen(node="gpu-07.a.org") == least
    assert seen(part="gpu3") == seen(part="gpu3", subject="device") == replace(least, subject=Subject.DEVICE, part="gpu3")
    more = {"severity": "note", "subject": "link", "part": "ib0", "detail": "91 degrees", "happened": now - 5, "for": 600}
    assert seen(**more) == Evidence("webhook:site", Subject.LINK, least.name, Severity.NOTE, "91 degrees", now - 5, "hot", "ib0", now + 600)
    assert seen(happened=now + 60) == least, "a clock may be a little ahead"


def test_a_time_that_it_lasts(within: Callable[..., None]) -> None:
    async def check(served: Served) -> None:
        before = time.time()
        await served.post([{**ITEM, "for": 600}, {**ITEM, "node": "n1", "until": before + 50}])
        nodes = served.job("a").service.machine.state.nodes
        served.taints("a")
        (lasting,), (ending,) = nodes["n0"].taints.values(), nodes["n1"].taints.values()
        assert before + 600 <= lasting.until <= time.time() + 600
        assert ending.until == before + 50

    within(check)


def test_a_flood_is_refused_as_a_whole_and_reaches_no_job(within: Callable[..., None]) -> None:
    """Of one kind of token. Alertmanager gets a status after which it tries again."""

    async def check(served: Served) -> None:
        for _ in range(int(PER_MINUTE) // 100):
            assert (await served.post([ITEM] * 100)).status_code == 200
        seen = len(served.job("a").service._seen)
        many = await served.post([ITEM] * 100)
        assert many.status_code == 429 and 1 <= int(many.headers["retry-after"]) <= 60
        again = await served.post(message(*[alert(node="n0")] * 100), path="/v1/evidence/alertmanager")
        assert again.status_code == 503 and int(again.headers["retry-after"]) >= 1
        assert again.json()["detail"] == http_requests.TOO_MUCH_EVIDENCE(most=600)
        assert len(served.job("a").service._seen) == seen
        assert len(await served.alerts(*[alert(node="nobody")] * 100)) == 100, "what goes nowhere costs nothing"
        assert (await served.post([ITEM], ACCESS.token(Role.EVIDENCE, "a"))).status_code == 200, "others are heard"
        transport = httpx.ASGITransport(create_app(served.jobs, ACCESS, served.cluster), client=("192.0.2.7", 1))
        elsewhere = httpx.ASGITransport(transport.app, client=("192.0.2.8", 1))
        for way, statuses in ((transport, [200] * 6 + [429]), (elsewhere, [200])):
            async with httpx.AsyncClient(transport=way, base_url="http://test") as client:
                other = Served(served.jobs, served.cluster, client, served.reported)
                assert [(await other.post([ITEM] * 100)).status_code for _ in statuses] == statuses, "of one address"

    within(check)


def test_what_is_made_up_fills_neither_a_node_nor_the_journal(within: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """What others see there is kept as before."""
    monkeypatch.setattr(evidence_routes, "PER_MINUTE", 1e6)
    monkeypatch.setattr(service_module, "NEWS", 1e-9)
    gpu = Evidence("nvml", Subject.DEVICE, "n0", Severity.SUSPECT, "fallen off the bus", time.time(), "xid-79", "gpu0")

    async def check(served: Served) -> None:
        service, written = served.job("a").service, list[Event]()
        submit = service.submit

        def noted(event: Event) -> None:
            written.append(event)
            submit(event)

        monkeypatch.setattr(service, "submit", noted)
        for number in range(MOST // 50):
            items = [{**ITEM, "source": f"s{one}", "kind": f"k{number}", "part": f"gpu{one}"} for one in range(100)]
            assert (await served.post(items)).status_code == 200
            service.look()
        assert served.cluster is not None
        assert len(served.cluster.nodes["n0"].suspected) == SUSPICIONS // SHARE
        assert len([event for event in written if isinstance(event, Observed)]) == MOST
        assert served.cluster.observe(gpu) == ["a"]
        assert ("nvml", "xid-79", "gpu0") in served.cluster.nodes["n0"].suspected
        assert ("nvml", "gpu0") in served.taints("a")["n0"]
        assert [event.detector for event in written if isinstance(event, Observed)][-1] == "nvml"

    within(check)


def test_who_comes_from_ever_new_addresses_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADDRESSES", 2)
    buckets = limits.Buckets(1.0, 5.0)
    for who in "abab":
        buckets.of(who).take(0.0, 2.0)
    assert buckets.of("a").take(0.0, 2.0) == 1.0, "it is remembered"
    buckets.of("c")
    assert buckets.of("a").take(0.0, 2.0) == 1.0, "it has come lately"
    assert buckets.of("b").take(0.0, 5.0) == 0.0, "it is forgotten"
