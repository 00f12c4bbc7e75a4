"""The rights that an installation gives (`deploy/kubernetes`) are those that the code asks for: no more, no less.

The code runs against a stand-in for the API server that notes what each request needs.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any, cast

import pytest
from tests.kustomize import KUBERNETES, NVSENTINEL, Object, resolved
from tests.schedulers.kubernetes.objects import job, resource, summary
from tests.schedulers.kubernetes.recorder import Recorder, Right

from understudy.controller import objects
from understudy.controller.controller import Controller
from understudy.controller.leader_election import LeaderElection
from understudy.schedulers.base import ShownIncident, Work
from understudy.schedulers.kubernetes import names, pods
from understudy.schedulers.kubernetes.allocation import KubernetesAllocation
from understudy.schedulers.kubernetes.api import Api, group_path, path
from understudy.schedulers.kubernetes.config_map_log import ConfigMapLog
from understudy.schedulers.kubernetes.leader_lease import LeaderLease

JOBS = group_path(f"{names.GROUP}/{names.VERSION}", names.PLURAL, "ml")
DRAINS = "nvsentinel.nvidia.com/v1alpha1"
KEYS = names.Keys(names.GROUP)
PODS = path("pods", "ml")
RESOURCE = "resource.k8s.io"
DISCOVERED: tuple[tuple[str, Object], ...] = (
    ("/apis", {"groups": [{"name": "policy", "versions": [{"groupVersion": "policy/v1"}]}]}),
    (f"/apis/{RESOURCE}", {"versions": [{"groupVersion": f"{RESOURCE}/v1", "version": "v1"}]}),
    (f"/apis/{RESOURCE}/v1", {"resources": [{"name": kind} for kind in ("resourceslices", "devicetaintrules", "resourceclaims")]}),
)
# Not requested separately: the server checks them when something else is created.
WITHOUT_ASKING = {
    (names.GROUP, "understudyjobs/finalizers", "update"),
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
}


@pytest.fixture
def server() -> Recorder:
    return Recorder(*copy.deepcopy(DISCOVERED))


def rules(installed: list[Object], kind: str, name: str) -> list[Object]:
    (found,) = [each for each in installed if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return cast("list[Object]", found["rules"])


def given(found: list[Object]) -> set[tuple[str, str, str]]:
    return {(g, r, v) for rule in found for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def asked(needed: set[Right]) -> set[tuple[str, str, str]]:
    return {(right.group, right.resource, right.verb) for right in needed}


def turn(server: Recorder, drains: str = "") -> None:
    """One of a controller that has just begun."""
    controller = Controller(cast(Api, server), names.GROUP, "image", "", drains, lambda text: None)
    left = [True]
    controller.run(lambda: bool(left) and left.pop())


def worker(number: int, phase: str, **metadata: Any) -> Object:
    made = pods.worker(job(), number, ())
    made["metadata"] |= metadata
    return made | {"spec": made["spec"] | {"nodeName": "w1"}, "status": {"phase": phase}}


def control(server: Recorder, drains: str = "") -> None:
    """Whatever a controller does."""
    server.put(path("nodes", ""), {"metadata": {"name": "w1"}, "status": {}})
    server.put(JOBS, resource())
    other = resource(pods=0)
    other["metadata"]["name"] = "refused"
    server.put(JOBS, other)
    turn(server, drains)  # finalizer; refusal
    server.put(PODS, worker(0, "Failed"))
    server.put(PODS, worker(1, "Running"))
    request = {"metadata": {"name": "d", "namespace": "nvsentinel"}, "spec": {"nodeName": "w1"}}
    server.put(group_path(DRAINS, "drainrequests", "nvsentinel"), request)
    empty = {"metadata": {"name": "e", "namespace": "nvsentinel"}, "spec": {"nodeName": "w2"}}
    server.put(group_path(DRAINS, "drainrequests", "nvsentinel"), empty)
    turn(server, drains)  # objects, pods, the failed one; drains
    server.objects = {key: what for key, what in server.objects.items() if key[1] != "pods"}
    server.objects[names.GROUP, names.PLURAL, "ml", "gpt"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    turn(server, drains)  # the end


def test_the_controller_may_do_what_it_does_and_nothing_else(server: Recorder) -> None:
    control(server)
    assert given(rules(resolved(KUBERNETES), "ClusterRole", "understudy-controller")) == asked(server.needed) | WITHOUT_ASKING
    made = {key[1] for key in server.objects}
    assert {"secrets", "services", "rolebindings", "networkpolicies", "poddisruptionbudgets", "serviceaccounts"} <= made
    assert "clusterrolebindings" not in made, "taken back with the job"


def test_with_drain_requests_it_may_do_a_little_more(server: Recorder) -> None:
    control(server, DRAINS)
    installed = resolved(KUBERNETES, NVSENTINEL)
    both = [*rules(installed, "ClusterRole", "understudy-controller"), *rules(installed, "ClusterRole", "understudy-controller-drains")]
    assert given(both) == asked(server.needed) | WITHOUT_ASKING


def test_its_lock_is_the_only_thing_that_it_may_touch_where_it_runs(server: Recorder) -> None:
    lead = LeaderElection(cast(Api, server), "understudy-system", "me", lambda text: None)
    lead.wait()
    server.wait_for(lambda needed: any(right.verb == "update" for right in needed))
    lead.give_up()
    found = rules(resolved(KUBERNETES), "Role", "understudy-controller")
    assert given(found) == asked(server.needed)
    named = {(verb, name) for rule in found for verb in rule["verbs"] for name in rule.get("resourceNames", [""])}
    assert named == {(right.verb, right.name) for right in server.needed}


def test_orchestrators_may_do_what_they_do_and_nothing_else(server: Recorder) -> None:
    """Those of the namespace by one role, those of the cluster by the other. An administrator may add the right to cordon nodes."""
    server.put(path("nodes", ""), {"metadata": {"name": "w1", "labels": {}}, "status": {}})
    server.put(JOBS, resource())
    for number in range(2):
        server.put(PODS, worker(number, "Running"))
    server.objects["", "pods", "ml", "gpt-0"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    ours = KubernetesAllocation(cast(Api, server), names.GROUP, "ml", "gpt", "u-1")
    ours.look()
    incident = ShownIncident(1, False, "rank 0", 1e9)
    ours.show(summary(incidents=(incident,)))
    ours.claim(1, Work("w", ()), (), "", "needed")
    server.objects["", "pods", "ml", "gpt-claim-1"]["status"] = {"phase": "Running"}
    ours.record_claim(1, "serves")
    ours.release(["gpt-1"], "left")
    ours.give_back(1)
    ours.close()
    lock = LeaderLease(cast(Api, server), "ml", names.account("gpt"), "me", 10, job().owner())
    assert lock.take() == 1
    lock.renew()
    lock.give_up()
    log = ConfigMapLog(cast(Api, server), names.GROUP, "ml", "gpt", job().owner())
    assert log.read() == []
    log.write(["entry"], "me")
    with suppress(Exception):
        ConfigMapLog(cast(Api, server), names.GROUP, "ml", "gpt", job().owner()).write(["other"], "you")
    server.wait_for(lambda needed: len([right for right in needed if right.verb == "watch"]) == 5)
    mine = {right for right in server.needed if right.namespace}
    installed = resolved(KUBERNETES)
    finalizers = (names.GROUP, "understudyjobs/finalizers", "update")
    assert given(rules(installed, "ClusterRole", objects.ROLE)) == asked(mine) | {finalizers}
    assert given(rules(installed, "ClusterRole", objects.NODE_ROLE)) == asked(server.needed - mine)


def test_the_controller_may_bind_the_roles_that_it_binds(server: Recorder) -> None:
    (bind,) = [rule for rule in rules(resolved(KUBERNETES), "ClusterRole", "understudy-controller") if rule["verbs"] == ["bind"]]
    bound = {what["roleRef"]["name"] for _, what in objects.wanted(job(), "policy/v1") if "roleRef" in what}
    assert bound == set(bind["resourceNames"]) == {objects.ROLE, objects.NODE_ROLE}
