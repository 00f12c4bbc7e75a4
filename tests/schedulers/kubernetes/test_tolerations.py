"""Which taints of a pod's node are evidence against it: not those in spite of which it was put there."""

from __future__ import annotations

from typing import Any

import pytest
from tests.schedulers.kubernetes.objects import GROUP, pod

from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.node_health import of_devices, of_node
from understudy.schedulers.kubernetes.resource import Evidence
from understudy.schedulers.kubernetes.tolerations import Tolerated, identity, matches, tolerates

KEYS = Keys(GROUP)
GPU: Object = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
XID: Object = {"key": "nvidia.com/gpu-xid", "value": "74", "effect": "NoSchedule"}
LEAVES: Object = {"key": "a", "value": "b", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [  # as TestTolerationToleratesTaint of k8s.io/api/core/v1 has it
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "absent", "effect": "NoSchedule"}, False),
        ({"key": "nvidia.com/gpu", "effect": "NoSchedule"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "amd.com/gpu", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "PreferNoSchedule"}, False),
        ({"operator": "Equal", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Like", "value": "present"}, False),
    ],
)
def test_a_toleration_is_for_a_taint(toleration: Object, expected: bool) -> None:
    assert matches(toleration, GPU) is expected


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [("Gt", "94", True), ("Gt", "95", False), ("Lt", "96", True), ("Lt", "95", False), ("Lt", "x", False)],
)
def test_a_toleration_that_compares_numbers(operator: str, value: str, expected: bool) -> None:
    """As newer clusters know them: the taint's value is less, or greater, than the toleration's."""
    taint = {"key": "health", "value": "95", "effect": "NoSchedule"}
    assert matches({"key": "health", "operator": operator, "value": value}, taint) is expected
    assert not matches({"key": "health", "operator": operator, "value": value}, taint | {"value": "good"})


def test_a_taint_without_a_value() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    assert matches({"key": "gpu", "value": ""}, taint) and not matches({"key": "gpu", "value": "x"}, taint)


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], False),
        ([{"operator": "Exists", "effect": "NoExecute"}], True),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}], False),
        ([{"key": "a", "operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}], True),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, {"key": "a", "operator": "Exists"}], False),
    ],
)
def test_what_is_tolerated_for_a_while_drives_the_pod_away(tolerations: list[Object], expected: bool) -> None:
    assert tolerates(tolerations, LEAVES) is expected


def kinds(tolerated: Tolerated, on: Object, *taints: Object) -> list[str]:
    node = {"metadata": {"name": "w1"}, "spec": {"taints": list(taints)}, "status": {}}
    return [trouble.reason.partition("has the taint ")[2] for trouble in of_node(node, Evidence(), tolerated.of(on, taints))]


def on_a_gpu_node(*tolerations: Object, **metadata: Any) -> Object:
    made = pod("gpt-1", node="w1", **metadata)
    made["spec"]["tolerations"] = list(tolerations)
    return made


def test_what_the_pod_tolerates_is_no_evidence_unless_it_came_later() -> None:
    tolerated, everything = Tolerated(KEYS), on_a_gpu_node({"operator": "Exists"})
    assert kinds(tolerated, everything, GPU) == []
    assert kinds(tolerated, everything, GPU, XID) == ["nvidia.com/gpu-xid=74:NoSchedule"]
    assert kinds(tolerated, everything) == []
    assert kinds(tolerated, everything, GPU) == ["nvidia.com/gpu=present:NoSchedule"], "it was taken away, and is a new one"


def test_what_the_pod_does_not_tolerate_is_evidence_whenever_it_came() -> None:
    gpus = on_a_gpu_node({"key": "nvidia.com/gpu", "operator": "Exists"})
    assert kinds(Tolerated(KEYS), gpus, GPU, XID) == ["nvidia.com/gpu-xid=74:NoSchedule"]


def test_the_next_orchestrator_knows_what_came_later() -> None:
    everything = on_a_gpu_node({"operator": "Exists"})
    first = Tolerated(KEYS)
    assert first.annotation(everything) == {}
    kinds(first, everything, GPU)
    note = first.annotation(everything)
    assert kinds(Tolerated(KEYS), everything | {"metadata": everything["metadata"] | {"annotations": note}}, GPU, XID) != []
    for text in ("", "none", "{}", "[1]"):
        other = on_a_gpu_node({"operator": "Exists"}, annotations={KEYS.tolerated: text})
        assert kinds(Tolerated(KEYS), other, GPU) == [], "as one that was not seen before"


def test_the_same_taint_at_another_time_is_another_one() -> None:
    tolerated, everything = Tolerated(KEYS), on_a_gpu_node({"operator": "Exists"})
    first, second = (GPU | {"timeAdded": f"2026-11-26T08:00:0{second}Z"} for second in (0, 1))
    assert kinds(tolerated, everything, first) == [] and kinds(tolerated, everything, second) != []
    assert identity(GPU) == identity(GPU | {"timeAdded": None}) != identity(first)


@pytest.mark.parametrize(("added", "counts"), [("2026-11-26T07:00:00Z", False), ("2026-11-26T09:00:00Z", True), (None, False)])
def test_a_pod_that_ran_before_it_was_first_seen(added: str | None, counts: bool) -> None:
    """As after an upgrade: nothing is noted of it, but when it started and when the taint came."""
    everything = on_a_gpu_node({"operator": "Exists"})
    everything["status"]["startTime"] = "2026-11-26T08:00:00Z"
    unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": added}
    first = Tolerated(KEYS)
    for tolerated in (first, first, Tolerated(KEYS)):
        assert kinds(tolerated, everything, GPU, unreachable) == ["node.kubernetes.io/unreachable=:NoExecute"] * counts
        everything["metadata"]["annotations"] = first.annotation(everything)


def test_a_cordon_is_none_for_a_pod_that_came_to_a_cordoned_node() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    node: Object = {"metadata": {"name": "w1"}, "spec": {"unschedulable": True, "taints": [cordon]}, "status": {}}
    came = Tolerated(KEYS).of(on_a_gpu_node({"operator": "Exists"}), [cordon])
    assert of_node(node, Evidence(), came) == []
    assert [trouble.kind for trouble in of_node(node, Evidence(), Tolerated(KEYS).of(on_a_gpu_node(), [cordon]))] == ["cordon"]


@pytest.mark.parametrize(
    ("tolerations", "added", "suspect"),
    [
        ([], "2026-11-26T07:00:00Z", True),
        ([{"operator": "Exists"}], "2026-11-26T07:00:00Z", False),
        ([{"operator": "Exists"}], "2026-11-26T09:00:00Z", True),
        ([{"key": "other", "operator": "Exists"}], "2026-11-26T07:00:00Z", True),
    ],
)
def test_taints_of_devices_that_their_claim_tolerates(tolerations: list[Object], added: str, suspect: bool) -> None:
    device = {"driver": "gpu.nvidia.com", "pool": "w1", "device": "gpu-1"}
    claims = {"c": {"status": {"allocation": {"devices": {"results": [device | {"tolerations": tolerations}]}}}}}
    mine = pod("gpt-1")
    mine["status"] |= {"startTime": "2026-11-26T08:00:00Z", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
    found = of_devices(mine, claims, {("gpu.nvidia.com", "w1", "gpu-1"): [{"key": "hot", "effect": "NoExecute", "timeAdded": added}]})
    assert bool(found) is suspect
