"""What an operator of one job may do to nodes, and what takes the right for all jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.message_texts import has
from tests.orchestrator.test_evidence_routes import ACCESS, Served, within

from understudy.messages import http_requests, service_jobs
from understudy.orchestrator import cluster as module
from understudy.orchestrator import cluster_routes, jobs
from understudy.orchestrator.security import Role
from understudy.policy.rules import Policy, parse

__all__ = ["within"]

OF_B = ACCESS.token(Role.OPERATE, "b")
OF_ALL = ACCESS.token(Role.OPERATE)


def taints(served: Served, job: str) -> list[tuple[str, str, str]]:
    node = served.job(job).service.machine.state.nodes["n1"]
    return [(taint.source, taint.reason, taint.by) for taint in node.taints.values()]


async def drained(served: Served, token: str, **words: Any) -> httpx.Response:
    return await served.post({"force": True, **words}, token, "/v1/nodes/n1/drain")


def test_a_decision_of_a_job_s_operator_concerns_that_job(within: Callable[..., None]) -> None:
    async def check(served: Served) -> None:
        assert served.cluster is not None
        for what, body in (("taint", {"reason": "loud"}), ("drain", {"reason": "to look", "force": True})):
            assert (await served.post({"node": "n1", **body}, OF_B, f"/v1/jobs/b/{what}")).status_code == 200
            refused = await served.post({"node": "n1", **body}, OF_B, f"/v1/jobs/a/{what}")
            assert refused.json()["detail"] == http_requests.ROLE_NEEDED_FOR_JOB(role="operate", job="a")
            refused = await served.post(body, OF_B, f"/v1/nodes/n1/{what}")
            assert refused.json()["detail"] == http_requests.ROLE_NEEDED_FOR_ALL(role="operate")
        assert taints(served, "b") == [("operator", "loud", "job"), ("drain", "to look", "job")] and taints(served, "a") == []
        assert (served.cluster.taint("n1"), served.cluster.drain_stage("n1")) == ("", "")
        assert (await served.post({"node": "n1"}, OF_B, "/v1/jobs/b/taint")).status_code == 200
        assert taints(served, "b") == []

    within(check)


def test_a_taint_for_all_jobs_is_lifted_for_all(within: Callable[..., None]) -> None:
    async def check(served: Served) -> None:
        assert served.cluster is not None
        assert (await served.post({"reason": "its fan"}, OF_ALL, "/v1/nodes/n1/taint")).status_code == 200
        assert (await drained(served, OF_ALL, reason="a new kernel")).status_code == 200
        for job in "ab":
            assert taints(served, job) == [("operator", "its fan", "service"), ("drain", "a new kernel", "service")]
        for what, reason in (("taint", ""), ("taint", "mine"), ("drain", "mine"), ("undrain", "")):
            body = {"node": "n1", "force": True, "reason": reason}
            refused = await served.post(body, OF_B, f"/v1/jobs/b/{what}")
            assert refused.status_code == 403 and has(refused.json()["detail"], http_requests.SET_FOR_ALL_JOBS, node="n1"), what
        assert (await served.post({"node": "n1", "force": True, "dry_run": True}, OF_B, "/v1/jobs/b/drain")).status_code == 200
        assert served.cluster.taint("n1") == service_jobs.NODE_DRAINED(reason="a new kernel")
        assert (await served.post({"check": False}, OF_ALL, "/v1/nodes/n1/undrain")).json()["jobs"] == ["a", "b"]
        assert served.cluster.taint("n1") == service_jobs.NODE_TAINTED(reason="its fan")
        assert (await served.post({}, OF_ALL, "/v1/nodes/n1/taint")).status_code == 200
        assert served.cluster.taint("n1") == "" and taints(served, "a") == taints(served, "b") == []
        assert (await served.post({}, OF_ALL, "/v1/nodes/n7/taint")).status_code == 404

    within(check)


def test_jobs_of_one_token_wait_in_bounds(within: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_OF_ONE", 2)
    monkeypatch.setattr(module, "WAITING", 3)
    ann, bob, eve = (ACCESS.token(Role.SUBMIT, days=days) for days in (1.0, 2.0, 3.0))

    async def check(served: Served) -> None:
        async def submit(name: str, token: str) -> httpx.Response:
            policy = '[[rule]]\nname = "all"\naction = "note"'
            body = {"name": name, "program": ["train.py"], "folder": "/", "policy": policy}
            return await served.post(body, token, "/v1/jobs")

        assert [(await submit(f"of-ann-{number}", ann)).status_code for number in range(2)] == [201, 201]
        for name, token in (("of-ann-2", ann), ("of-eve", eve)):
            answer = await submit(name, token)
            assert answer.status_code == 429 and has(answer.json()["detail"], http_requests.TOO_MANY_WAITING, most=2, of_all=3)
            assert (await submit("of-bob", bob)).status_code in (201, 409), "others may, as far as all may"
        assert served.cluster is not None
        del served.cluster.waiting["of-ann-0"]
        assert (await submit("of-ann-2", ann)).status_code == 201

    within(check)


def test_a_submitted_policy_is_read_once_and_not_where_agents_are_served(
    within: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bool] = []

    def parsed(text: str, name: str) -> Policy:
        read.append(threading.current_thread() is threading.main_thread())
        return parse(text, name)

    async def check(served: Served) -> None:
        for place in (cluster_routes, jobs):
            monkeypatch.setattr(place, "parse", parsed)
        policy = '[[rule]]\nname = "all"\naction = "note"\n[trust]\ncheck = true'
        body = {"name": "job", "program": ["train.py"], "folder": "/", "policy": policy}
        assert (await served.post(body, ACCESS.token(Role.SUBMIT), "/v1/jobs")).status_code == 201
        assert read == [False] and served.job("job").service.machine.state.spec.admission

    within(check)


def test_a_drain_of_all_jobs_taken_back_leaves_that_of_one(within: Callable[..., None]) -> None:
    async def check(served: Served) -> None:
        assert (await served.post({"node": "n1", "force": True}, OF_B, "/v1/jobs/b/drain")).status_code == 200
        refused = await served.post({}, OF_ALL, "/v1/nodes/n1/undrain")
        assert refused.json()["detail"] == http_requests.NODE_NOT_DRAINED(node="n1")
        assert taints(served, "b") == [("drain", "requested", "job")]

    within(check)
