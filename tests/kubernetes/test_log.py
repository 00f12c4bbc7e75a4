"""A real API server: the log and the lock of a job's orchestrators, and their knowledge of objects while the server goes and comes."""

from __future__ import annotations

import json
from typing import Any

import kubernetes.client
import kubernetes.config
import pytest

from tests.integration.processes import wait_until
from tests.integration.training import LONG
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.pods import SLEEPS, pod
from tests.message_texts import refused
from understudy.messages import kubernetes_api, kubernetes_jobs
from understudy.schedulers.base import SchedulerAway
from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, group_path, path
from understudy.schedulers.kubernetes.config_map_log import MOST, ConfigMapLog, Overtaken, parts
from understudy.schedulers.kubernetes.informer import Informer
from understudy.schedulers.kubernetes.leader_lease import GROUP as GROUP_OF_LEASES
from understudy.schedulers.kubernetes.leader_lease import LeaderLease, Lost

pytestmark = [needs_kubernetes, pytest.mark.timeout(300)]
GROUP = "understudy.dev"


def api_of(cluster: Cluster) -> Api:
    configuration = kubernetes.client.Configuration()
    load: Any = kubernetes.config.load_kube_config
    load(str(cluster.plane.kubeconfig), client_configuration=configuration)
    return Api(configuration)


def owner_of(cluster: Cluster) -> Object:
    made = cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made["metadata"]["uid"]}


def log_of(cluster: Cluster, api: Api, owner: Object) -> ConfigMapLog:
    return ConfigMapLog(api, GROUP, cluster.namespace, "gpt", owner)


def test_who_has_been_overtaken_cannot_write(kubernetes_cluster: Cluster) -> None:
    """Whatever it believes about the lock. Its successor has read everything that it wrote before."""
    api, owner = api_of(kubernetes_cluster), owner_of(kubernetes_cluster)
    first, second = (log_of(kubernetes_cluster, api, owner) for _ in range(2))
    assert first.read() == []
    first.write(["leads 1"], "a")
    first.write(["event 1", "event 2"], "a")
    assert second.read() == ["leads 1", "event 1", "event 2"]
    second.write(["leads 2"], "b")
    with pytest.raises(Overtaken):
        first.write(["event 3"], "a")
    second.write(["event 3"], "b")
    assert log_of(kubernetes_cluster, api, owner).read() == ["leads 1", "event 1", "event 2", "leads 2", "event 3"]
    kubernetes_cluster.delete("ConfigMap", "owner")
    selector = f"{GROUP}/log=gpt"
    wait_until(lambda: not kubernetes_cluster.all_of("ConfigMap", labelSelector=selector), "no log", LONG)


def test_what_was_written_before_the_answer_was_lost_is_there_once(kubernetes_cluster: Cluster) -> None:
    api, owner = api_of(kubernetes_cluster), owner_of(kubernetes_cluster)
    mine, again = log_of(kubernetes_cluster, api, owner), log_of(kubernetes_cluster, api, owner)
    mine.read(), again.read()
    mine.write(["event 1"], "a")
    again.write(["event 1"], "a")  # the same writer, which has not heard that it went well
    again.write(["event 2"], "a")
    assert log_of(kubernetes_cluster, api, owner).read() == ["event 1", "event 2"]


def test_no_object_is_larger_than_the_server_takes() -> None:
    entries = ["x" * (MOST - 100), "y" * 200, "z"]
    assert parts(entries) == [[entries[0]], [entries[1], entries[2]]]
    assert parts([]) == []


def test_a_part_that_was_deleted_is_missed(kubernetes_cluster: Cluster) -> None:
    api, owner = api_of(kubernetes_cluster), owner_of(kubernetes_cluster)
    log = log_of(kubernetes_cluster, api, owner)
    log.read()
    for number in range(3):
        log.write([f"event {number}"], "a")
    kubernetes_cluster.delete("ConfigMap", f"gpt-log-{owner['uid'][:8]}-000001")
    with refused(ValueError, kubernetes_jobs.LOG_PART_MISSING, number=1):
        log_of(kubernetes_cluster, api, owner).read()


def another_owner(cluster: Cluster) -> Object:
    """As a job that is made under the name of one which Kubernetes has not removed yet."""
    made = cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "another"}})
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "another", "uid": made["metadata"]["uid"]}


def test_the_log_of_a_deleted_job_of_the_same_name(kubernetes_cluster: Cluster) -> None:
    """It is not read, and the new one does not wait until Kubernetes has removed it."""
    api = api_of(kubernetes_cluster)
    first, second = owner_of(kubernetes_cluster), another_owner(kubernetes_cluster)
    before = log_of(kubernetes_cluster, api, first)
    before.read()
    before.write(["event 1"], "a")
    after = log_of(kubernetes_cluster, api, second)
    assert after.read() == []
    after.write(["event 2"], "b")
    assert log_of(kubernetes_cluster, api, first).read() == ["event 1"]
    assert log_of(kubernetes_cluster, api, second).read() == ["event 2"]


def test_a_log_that_an_earlier_version_has_begun(kubernetes_cluster: Cluster) -> None:
    """Its objects have names without a uid. It goes on under these: an orchestrator of that version is refused when it is overtaken."""
    api, owner = api_of(kubernetes_cluster), owner_of(kubernetes_cluster)
    metadata = {"name": "gpt-log-000000", "labels": {f"{GROUP}/log": "gpt", f"{GROUP}/number": "0"}, "ownerReferences": [owner]}
    data = {"entries": json.dumps(["leads 1"]), "writer": "a"}
    kubernetes_cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data})
    log = log_of(kubernetes_cluster, api, owner)
    assert log.read() == ["leads 1"]
    log.write(["leads 2"], "b")
    assert kubernetes_cluster.has("ConfigMap", "gpt-log-000001")
    assert log_of(kubernetes_cluster, api, owner).read() == ["leads 1", "leads 2"]
    another = log_of(kubernetes_cluster, api, another_owner(kubernetes_cluster))
    another._prefix = "gpt-log"
    with refused(SchedulerAway, kubernetes_jobs.LOG_PART_OF_ANOTHER, name="gpt-log-000000"):
        another.write(["leads 1"], "a")


def test_the_lock_of_a_deleted_job_of_the_same_name(kubernetes_cluster: Cluster) -> None:
    """It is not taken, though its holder is gone, since Kubernetes would remove it under the new holder."""
    api, namespace = api_of(kubernetes_cluster), kubernetes_cluster.namespace
    owners = owner_of(kubernetes_cluster), another_owner(kubernetes_cluster)
    first, second = (LeaderLease(api, namespace, "gpt", name, 1, owner) for name, owner in zip(("0 x", "0 y"), owners, strict=True))
    assert first.take() == 1
    first.give_up()
    assert second.take() is None and second.other == ""
    kubernetes_cluster.delete("ConfigMap", "owner")
    wait_until(lambda: second.take() == 1, "the lock, when the first one is gone", LONG)
    assert api.read(group_path(GROUP_OF_LEASES, "leases", namespace, "gpt"))["metadata"]["ownerReferences"] == [owners[1]]


def test_a_lock_without_an_owner_may_be_taken(kubernetes_cluster: Cluster) -> None:
    """Kubernetes will not remove it: it was left by `kubectl delete --cascade=orphan`."""
    api, namespace, owner = api_of(kubernetes_cluster), kubernetes_cluster.namespace, owner_of(kubernetes_cluster)
    left, ours = LeaderLease(api, namespace, "gpt", "0 x", 1), LeaderLease(api, namespace, "gpt", "0 y", 1, owner)
    assert left.take() == 1
    left.give_up()
    assert ours.take() == 2
    assert api.read(group_path(GROUP_OF_LEASES, "leases", namespace, "gpt"))["metadata"]["ownerReferences"] == [owner]


def test_one_has_the_lock(kubernetes_cluster: Cluster) -> None:
    api = api_of(kubernetes_cluster)
    first, second = (LeaderLease(api, kubernetes_cluster.namespace, "gpt", f"{name} x", 2) for name in "01")
    assert first.take() == 1
    assert second.take() is None and second.other == "0 x"
    first.renew()
    first.give_up()
    assert second.take() == 2
    with pytest.raises(Lost):
        first.renew()
    wait_until(lambda: first.take() == 3, "the lock, when it has run out", LONG)
    with pytest.raises(Lost):
        second.renew()
    second.give_up()
    first.renew()


def test_a_label_that_is_written_from_what_was_read_before_is_refused(kubernetes_cluster: Cluster) -> None:
    """With 409, so a stale orchestrator cannot write outdated facts about a pod."""
    api = api_of(kubernetes_cluster)
    kubernetes_cluster.apply(pod("one", SLEEPS))
    kubernetes_cluster.wait_for_pod("one")
    where = path("pods", kubernetes_cluster.namespace, "one")
    read = api.read(where)["metadata"]["resourceVersion"]
    api.patch(where, {"metadata": {"labels": {"role": "active"}}})
    with refused(Conflict, kubernetes_api.REFUSED, status=409):
        api.patch(where, {"metadata": {"resourceVersion": read, "labels": {"role": "retired"}}})
    assert api.read(where)["metadata"]["labels"]["role"] == "active"
    with pytest.raises(Missing):
        api.read(path("pods", kubernetes_cluster.namespace, "none"))


def test_what_is_known_of_pods_while_the_server_goes_and_comes(kubernetes_cluster: Cluster) -> None:
    api = api_of(kubernetes_cluster)
    watched = Informer(api, path("pods", kubernetes_cluster.namespace), labelSelector="mine=yes")

    def known() -> list[str]:
        return sorted(each["metadata"]["name"] for each in watched.objects())

    def away() -> bool:
        try:
            watched.objects()
        except SchedulerAway:
            return True
        return False

    assert known() == []
    kubernetes_cluster.apply(pod("one", SLEEPS, labels={"mine": "yes"}))
    kubernetes_cluster.apply(pod("other", SLEEPS))
    wait_until(lambda: known() == ["one"], "the pod", LONG)
    kubernetes_cluster.plane.apiserver.kill()
    wait_until(away, "the server, away", LONG)
    kubernetes_cluster.plane.start()
    kubernetes_cluster.apply(pod("two", SLEEPS, labels={"mine": "yes"}))
    wait_until(lambda: not away() and known() == ["one", "two"], "both pods", LONG)
    kubernetes_cluster.delete("Pod", "one", grace=0)
    wait_until(lambda: known() == ["two"], "the other pod alone", LONG)
    watched.close()
