"""What an orchestrator does to the pods of its job. A stand-in for the API server keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.message_texts import refused
from tests.schedulers.kubernetes.objects import job, pod, resource, summary
from tests.schedulers.kubernetes.recorder import Recorder

from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import TAKEN, SchedulerAway, SchedulerFailed, Work
from understudy.schedulers.kubernetes import names
from understudy.schedulers.kubernetes.allocation import CLAIMED, KubernetesAllocation
from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, group_path, path

JOBS = group_path(f"{names.GROUP}/{names.VERSION}", names.PLURAL, "ml")
PODS = path("pods", "ml")
KEYS = names.Keys(names.GROUP)


class Server(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[tuple[str, int | None]] = []

    def read(self, path: str) -> Object:
        if path == "/apis/resource.k8s.io":
            raise Missing("it has no taints of devices")
        return super().read(path)

    def delete(self, path: str, grace: int | None = None, uid: str = "") -> None:
        """As a kubelet that does not answer: the pod stays."""
        found = self._found(path, "delete")
        found["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
        self.deleted.append((found["metadata"]["name"], grace))


@pytest.fixture
def server() -> Server:
    made = Server()
    for number in range(1, 4):
        made.put(path("nodes", ""), {"metadata": {"name": f"w{number}", "labels": {}}, "spec": {}, "status": {}})
    made.put(JOBS, resource(topologyKey="rack"))
    for number in range(3):
        made.put(PODS, pod(f"gpt-{number}", number=number, node=f"w{number + 1}"))
    return made


@pytest.fixture
def ours(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesAllocation]:
    made = KubernetesAllocation(cast(Api, server), names.GROUP, "ml", "gpt", "u-1")
    for watched, where in ((made._pods, PODS), (made._nodes, path("nodes", ""))):
        monkeypatch.setattr(watched, "objects", lambda where=where: server.listed(where)[0])
    yield made
    made.close()


def of(server: Server, name: str) -> Object:
    return cast(Object, server.objects["", "pods", "ml", name]["metadata"])


def status(server: Server) -> dict[str, Any]:
    group, version = names.GROUP, names.PLURAL
    return cast("dict[str, Any]", server.objects[group, version, "ml", "gpt"]["status"])


def test_a_pod_that_its_rank_has_left_is_a_spare(server: Server, ours: KubernetesAllocation) -> None:
    ours.look()
    ours.show(summary(ranks=("gpt-0", "gpt-1"), lost=()))
    assert [of(server, f"gpt-{number}")["labels"][KEYS.role] for number in range(3)] == ["active", "active", "spare"]
    ours.show(summary(ranks=("gpt-0", "gpt-2"), lost=()))
    assert of(server, "gpt-1")["labels"][KEYS.role] == "spare" and KEYS.rank not in of(server, "gpt-1")["labels"]
    assert of(server, "gpt-2")["labels"][KEYS.rank] == "1"


def test_a_node_of_the_cluster_is_avoided_as_long_as_its_lost_pod_is_there(server: Server, ours: KubernetesAllocation) -> None:
    """One whose kubelet answers ends the pod, and may get another one."""
    ours.look()
    ours.show(summary(ranks=("gpt-0", "gpt-2"), lost=("gpt-1",)))
    assert status(server)["avoid"] == ["w2"]
    assert ours.release(["gpt-1"], "") == ["gpt-1"] and server.deleted == [("gpt-1", 1)]
    del server.objects["", "pods", "ml", "gpt-1"]
    ours.show(summary(ranks=("gpt-0", "gpt-2"), lost=("gpt-1",), text="more"))
    assert status(server)["avoid"] == []
    assert not [node for node in ours.look() if node.name == "gpt-1"], "it is ours no more"


def test_a_pod_that_has_vanished_is_taken_from_us(server: Server, ours: KubernetesAllocation) -> None:
    ours.look()
    del server.objects["", "pods", "ml", "gpt-1"]
    (gone,) = [node for node in ours.look() if node.name == "gpt-1"]
    assert (gone.trouble, gone.suspect) == (TAKEN, True)


def test_a_claimed_pod_that_is_lost_is_given_back_once(server: Server, ours: KubernetesAllocation) -> None:
    """It has the label of one that is not needed, and still it has to be ended."""
    ours.look()
    ours.claim(4, Work("w", ()), ("gpt-1",), "gpt-0", "rank 1 is lost")
    made = server.objects["", "pods", "ml", "gpt-claim-4"]
    assert made["metadata"]["labels"][KEYS.number] == str(CLAIMED + 4)
    ours.claim(4, Work("w", ()), ("gpt-1",), "gpt-0", "rank 1 is lost")
    made["status"] = {"phase": "Running"}
    ours.show(summary(ranks=("gpt-0", "gpt-claim-4"), lost=("gpt-1",)))
    ours.show(summary(ranks=("gpt-0", ""), lost=("gpt-1", "gpt-claim-4")))
    assert made["metadata"]["labels"][KEYS.role] == "retired"
    assert list(ours.claims()) == [4]
    ours.give_back(4)
    ours.give_back(4)
    assert server.deleted == [("gpt-claim-4", None)]


def test_the_pod_of_a_claim_may_be_refused(server: Server, ours: KubernetesAllocation, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a quota, say: there is an event, and the claim ends."""

    def create(path: str, body: Object) -> Object:
        if path == PODS:
            raise SchedulerFailed("exceeded quota")
        return Server.create(server, path, body)

    monkeypatch.setattr(server, "create", create)
    for _ in range(2):
        with pytest.raises(SchedulerFailed, match="quota"):
            ours.claim(4, Work("w", ()), (), "gpt-0", "rank 1 is lost")
    (event,) = [what for key, what in server.objects.items() if key[1] == "events"]
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "CreationFailed", "exceeded quota")


def test_a_claim_that_is_refused_again_and_again_is_reported_once(
    server: Server, ours: KubernetesAllocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has a new number, and others use more or less of the quota in the meantime."""
    why = 'pods "gpt-claim-{number}" is forbidden: exceeded quota: few, used: pods={number}'

    def create(path: str, body: Object) -> Object:
        if path == PODS:
            number = body["metadata"]["labels"][KEYS.claim]
            raise SchedulerFailed(why.format(number=number))
        return Server.create(server, path, body)

    monkeypatch.setattr(server, "create", create)
    for number in (4, 5, 16, 4):
        with pytest.raises(SchedulerFailed, match=f"claim-{number}"):
            ours.claim(number, Work("w", ()), (), "gpt-0", "rank 1 leaves")
    why = "violates PodSecurity"
    with pytest.raises(SchedulerFailed):
        ours.claim(17, Work("w", ()), (), "gpt-0", "rank 1 leaves")
    events = [what["message"] for key, what in server.objects.items() if key[1] == "events"]
    assert events == ['pods "gpt-claim-4" is forbidden: exceeded quota: few, used: pods=4', "violates PodSecurity"]


def test_the_status_is_written_alongside_the_controller(
    server: Server, ours: KubernetesAllocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has shown something since it was read."""
    condition = {"type": "CreationFailed", "status": "True"}
    refused = [True]

    def patch(path: str, changes: Object) -> Object:
        if path.endswith("/status") and refused:
            refused.clear()
            status(server)["conditions"] = [condition]
            raise Conflict("it has changed")
        return Server.patch(server, path, changes)

    monkeypatch.setattr(server, "patch", patch)
    ours.show(summary())
    assert condition in status(server)["conditions"] and status(server)["phase"] == "Training"


def test_another_job_of_the_same_name(server: Server, ours: KubernetesAllocation) -> None:
    """Its resource and its pods are none of ours."""
    other = resource()
    other["metadata"]["uid"] = "u-2"
    server.put(JOBS, other)
    owner = [{"kind": "UnderstudyJob", "name": "gpt", "uid": "u-2"}]
    server.put(PODS, pod("gpt-1", number=1, node="w2", ownerReferences=owner))
    for asked in (ours.look, lambda: ours.show(summary())):
        with refused(Missing, kubernetes_jobs.JOB_REPLACED, job="gpt"):
            asked()
    assert "phase" not in status(server) and KEYS.rank not in of(server, "gpt-1")["labels"]
    with refused(Missing, kubernetes_jobs.JOB_REPLACED, job="gpt"):
        KubernetesAllocation(cast(Api, server), names.GROUP, "ml", "gpt", "u-1")
    server.put(JOBS, resource())
    assert [node.name for node in ours.look()] == ["gpt-0", "gpt-2"]


def test_what_the_resource_is_changed_into_and_cannot_be_changes_nothing(server: Server, ours: KubernetesAllocation) -> None:
    server.put(JOBS, resource(pods=0))
    assert [node.name for node in ours.look()] == ["gpt-0", "gpt-1", "gpt-2"] and not ours.cancelled()
    server.put(JOBS, resource(pods=0, deleted="2026-11-26T00:00:00Z"))
    ours.look()
    assert ours.cancelled() == kubernetes_jobs.RESOURCE_DELETED(kind="UnderstudyJob", namespace="ml", job="gpt")


def test_a_pod_is_where_its_node_is(server: Server, ours: KubernetesAllocation) -> None:
    labels = {"nvidia.com/gpu.clique": "c1.3", "rack": "r7"}
    server.put(path("nodes", ""), {"metadata": {"name": "w2", "labels": labels}, "spec": {}, "status": {}})
    found = {node.name: node.labels for node in ours.look()}
    assert found["gpt-1"] == (("nvlink-domain", "c1.3"), ("switch", "r7")) and found["gpt-0"] == ()


def test_one_that_cannot_be_looked_at_leaves_no_thread(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """An orchestrator tries once a second."""

    def away(path: str) -> Object:
        if path.startswith("/apis/resource"):
            raise SchedulerAway("away")
        return Server.read(server, path)

    monkeypatch.setattr(server, "read", away)
    with pytest.raises(SchedulerAway):
        KubernetesAllocation(cast(Api, server), names.GROUP, "ml", "gpt", "u-1")
    assert not [right for right in server.needed if right.verb in ("list", "watch")]


def test_a_job_that_is_not_there(server: Server) -> None:
    with pytest.raises(Missing):
        KubernetesAllocation(cast(Api, server), names.GROUP, "ml", "other", "u-1")


def test_drills_that_are_required_and_cannot_be() -> None:
    for spec in ({"drill": {"required": True, "at": 0}}, {"drill": {"required": True}, "spares": {"pods": 0}}):
        with refused(ValueError, kubernetes_jobs.NO_DRILLS):
            job(**spec)
