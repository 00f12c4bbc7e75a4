"""A real control plane: pods that it refuses, and the report in the job's resource."""

from __future__ import annotations

import pytest

from tests.integration.training import Outcome
from tests.kubernetes.api import Object
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.jobs import GROUP, KubernetesJob, Steady
from tests.kubernetes.pods import SLEEPS
from tests.message_texts import has
from understudy.messages import controller

pytestmark = [needs_kubernetes, pytest.mark.timeout(900)]


def quota(cluster: Cluster, pods: int) -> None:
    """It counts when this returns."""
    cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": str(pods)}}})
    there = {"pods": str(pods)}
    cluster.wait_for(lambda: (cluster.get("ResourceQuota", "few").get("status") or {}).get("hard") == there, "the quota")


def test_more_pods_than_the_quota_allows(kubernetes: Cluster, undisturbed: Outcome) -> None:
    """The job reports it, and begins when there is room."""
    quota(kubernetes, 3)
    job = KubernetesJob(kubernetes)
    job.wait_until(lambda: job.condition()["reason"] == "Refused", "the condition")
    assert job.condition()["status"] == "True" and "exceeded quota" in job.condition()["message"], job.condition()
    kubernetes.wait_for(lambda: ("Warning", "CreationFailed") in job.events(), "the event")
    assert job.pod_names() == ["job-0", "job-orchestrator-0", "job-orchestrator-1"] and ("Normal", "PodsCreated") in job.events()
    quota(kubernetes, 20)
    outcome = job.ends()
    assert outcome.record == undisturbed.record
    assert (job.condition()["status"], job.condition()["reason"]) == ("False", "Created")
    assert job.events().count(("Warning", "CreationFailed")) == 1, "once, however often it was refused"
    job.nothing_is_left()


def test_no_room_for_the_pod_that_comes_in_place_of_a_lost_one(kubernetes: Cluster) -> None:
    """The orchestrator's and the controller's conditions are both shown; no number of a pod is used up."""
    job = Steady(kubernetes)
    job.trains()
    quota(kubernetes, 3)
    kubernetes.patch("Pod", "job-2", {"metadata": {"annotations": {f"{GROUP}/leave": "a bad fan"}}})
    job.wait_until(lambda: job.pod_of(2) == "job-4", "rank 2 on the spare pod")
    job.wait_until(lambda: job.condition()["status"] == "True", "the condition")
    now = job.status["step"]
    job.wait_until(lambda: job.status["step"] > now, "what the orchestrator shows")
    assert job.condition()["status"] == "True" and job.condition("Training")["status"] == "True"
    quota(kubernetes, 20)
    job.wait_until(lambda: "job-5" in job.pod_names(), "the pod in its place")
    job.wait_until(lambda: job.condition()["status"] == "False", "the condition")
    assert job.status["nextNumber"] == 6
    job.ends_as_undisturbed()
    job.nothing_is_left()


def test_an_admission_webhook_that_does_not_answer(kubernetes: Cluster) -> None:
    kubernetes.api.patch(f"/api/v1/namespaces/{kubernetes.namespace}", {"metadata": {"labels": {"asked": kubernetes.namespace}}})
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    webhook: Object = {
        "name": "pods.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [rule],
        "failurePolicy": "Fail",
    }
    webhook |= {
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"asked": kubernetes.namespace}},
    }
    kind = "ValidatingWebhookConfiguration"
    api = "admissionregistration.k8s.io/v1"
    kubernetes.apply({"apiVersion": api, "kind": kind, "metadata": {"name": "away"}, "webhooks": [webhook]})
    job = KubernetesJob(kubernetes)
    job.wait_until(lambda: job.condition()["reason"] == "Refused" or len(job.pod_names()) == 7, "the condition")
    assert "pods.example.com" in job.condition()["message"], job.condition()
    assert job.pod_names() == [], "without orchestrators, pods with workers would only keep their devices"
    kubernetes.delete(kind, "away", api)
    assert job.ends().code == 0
    job.nothing_is_left()


def test_a_pod_that_cannot_start(kubernetes: Cluster) -> None:
    """Its template names a secret that is not there yet."""
    secret = {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "data", "key": "word"}}}
    first = {"name": "first", "image": "none", "command": ["true"], "env": [secret]}
    job = Sleeping(kubernetes, pod={"initContainers": [first]})
    job.wait_until(lambda: job.condition()["reason"] == "PodCannotStart", "the condition")
    assert has(job.condition()["message"], controller.POD_CANNOT_START, reason="CreateContainerConfigError"), job.condition()
    kubernetes.wait_for(lambda: ("Warning", "CreationFailed") in job.events(), "the event")
    kubernetes.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "data"}, "stringData": {"word": "x"}})
    job.wait_until(lambda: job.condition()["status"] == "False", "the condition, when they have started")
    for name in ("job-0", "job-4"):
        kubernetes.wait_for_pod(name, "Running")
    job.nothing_is_left()


class Sleeping(KubernetesJob):
    """A job whose pods only wait."""

    def command(self, trains: list[str]) -> list[str]:
        return SLEEPS
