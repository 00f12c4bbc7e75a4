"""What speaks against nodes on Kubernetes, and what is shown of a job there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.schedulers.kubernetes.objects import GROUP, job, pod

from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import JobSummary, ShownIncident
from understudy.schedulers.kubernetes import job_status, names
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.devices import tainted
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.node_health import of_devices, of_node, of_pod, seen
from understudy.schedulers.kubernetes.resource import Condition, Evidence

TIME = "2026-11-26T08:00:00Z"


def node(unschedulable: bool = False, taints: list[Object] | None = None, conditions: list[Object] | None = None) -> Object:
    return {"metadata": {"name": "w1"}, "spec": {"unschedulable": unschedulable, "taints": taints}, "status": {"conditions": conditions}}


def taint(text: str) -> Object:
    key, _, rest = text.partition("=")
    value, _, effect = rest.partition(":")
    return {"key": key, "value": value, "effect": effect, "timeAdded": TIME}


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (node(), []),
        (node(True, [taint("node.kubernetes.io/unschedulable=:NoSchedule")]), ["cordon"]),
        (node(taints=[taint("nvidia.com/gpu-xid=74:NoSchedule")]), ["taint"]),
        (node(taints=[taint("a=b:PreferNoSchedule")]), []),
        (node(taints=[taint("node.kubernetes.io/unreachable=:NoExecute")]), ["taint"]),
        (node(conditions=[{"type": "Ready", "status": "True"}]), []),
        (node(conditions=[{"type": "Ready", "status": "Unknown"}]), ["condition"]),
        (node(conditions=[{"type": "GpuNvlinkWatch", "status": "True", "message": "down"}]), ["condition"]),
        (node(conditions=[{"type": "GpuNvlinkWatch", "status": "False"}, {"type": "MemoryPressure", "status": "True"}]), []),
        (node(True, [taint("x=:NoExecute")], [{"type": "Ready", "status": "False"}]), ["cordon", "taint", "condition"]),
    ],
)
def test_what_speaks_against_a_node(given: Object, kinds: list[str]) -> None:
    assert [trouble.kind for trouble in of_node(given, Evidence())] == kinds


@pytest.mark.parametrize(
    ("evidence", "kinds"),
    [
        (Evidence(cordon=False, taints=(), conditions=()), []),
        (Evidence(cordon=False, taints=("gpu-*",), conditions=()), ["taint"]),
        (Evidence(cordon=False, taints=("gpu-*=7?",), conditions=()), ["taint"]),
        (Evidence(cordon=False, taints=("gpu-*=8?",), conditions=()), []),
        (Evidence(cordon=False, taints=("gpu-xid:NoSchedule",), conditions=()), ["taint"]),
        (Evidence(cordon=False, taints=("*",), ignored_taints=("gpu-xid",), conditions=()), []),
        (Evidence(cordon=False, taints=(), conditions=(Condition(type="Healthy", status="False"),)), ["condition"]),
        (Evidence(cordon=False, taints=(), conditions=(Condition(type="Healthy"),)), []),
    ],
)
def test_patterns_select_what_counts(evidence: Evidence, kinds: list[str]) -> None:
    given = node(True, [taint("gpu-xid=74:NoSchedule")], [{"type": "Healthy", "status": "False"}])
    assert [trouble.kind for trouble in of_node(given, evidence)] == kinds


def test_a_pod_that_is_deleted_and_one_that_is_to_be_left() -> None:
    leave = Keys(GROUP).leave
    assert of_pod(pod("gpt-1"), leave) is None
    gone = pod("gpt-1", deletionTimestamp="2026-11-26T08:01:00Z", deletionGracePeriodSeconds=60)
    gone["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting\x1b[2J"}
    ]
    found = of_pod(gone, leave)
    assert found is not None and found.kind == "deleted" and found.since == job_status.moment(TIME)
    assert found.reason == kubernetes_jobs.POD_DELETED(reason=": EvictionByEvictionAPI evicting\\x1b[2J")
    asked = of_pod(pod("gpt-1", annotations={leave: "a bad DIMM"}), leave)
    assert asked is not None and (asked.kind, asked.reason) == ("asked", kubernetes_jobs.POD_TO_BE_LEFT(reason="a bad DIMM"))


def test_all_troubles_are_reported_and_the_first_gives_the_kind() -> None:
    found = seen(pod("gpt-1", node="w1"), of_node(node(True, [taint("x=:NoExecute")]), Evidence()))
    assert (found.name, found.state, found.trouble, found.suspect) == ("gpt-1", "Running on w1", "cordon", True)
    assert found.reason == f"{kubernetes_jobs.CORDONED(node='w1')}; {kubernetes_jobs.TAINTED(node='w1', taint='x=:NoExecute')}"


SLICE = {
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "w1"},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1", "taints": [taint("hot=1:NoExecute"), taint("note=1:None")]}],
    }
}


@pytest.mark.parametrize(
    ("selector", "devices"),
    [
        ({}, {"gpu-1"}),
        ({"driver": "gpu.nvidia.com"}, {"gpu-0", "gpu-1"}),
        ({"driver": "gpu.nvidia.com", "pool": "w1", "device": "gpu-0"}, {"gpu-0", "gpu-1"}),
        ({"driver": "gpu.nvidia.com", "pool": "w2"}, {"gpu-1"}),
    ],
)
def test_taints_of_devices(selector: Object, devices: set[str]) -> None:
    found = tainted([SLICE], [{"spec": {"deviceSelector": selector, "taint": taint("dead=:NoSchedule")}}])
    assert {device for _, _, device in found} == devices


def test_the_pods_that_have_a_tainted_device() -> None:
    result = {"driver": "gpu.nvidia.com", "pool": "w1", "device": "gpu-1"}
    claims = {"c": {"status": {"allocation": {"devices": {"results": [result]}}}}}
    mine = pod("gpt-1")
    mine["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "c"}]
    (found,) = of_devices(mine, claims, tainted([SLICE], []))
    assert found.reason == kubernetes_jobs.DEVICE_TAINTED(device="gpu.nvidia.com/w1/gpu-1", taint="hot=1:NoExecute")
    assert not of_devices(pod("gpt-2"), claims, tainted([SLICE], []))


def summary(**changes: Any) -> JobSummary:
    given: dict[str, Any] = {
        "phase": "training",
        "step": 7,
        "generation": 3,
        "complete": True,
        "ranks": ("gpt-0", "gpt-0", "gpt-4", "gpt-0"),
        "spares": 1,
        "lost": ("gpt-1",),
        "tainted": (),
        "incidents": (ShownIncident(1, False, "node gpt-1 was lost", 100.0), ShownIncident(2, True, "w1 is cordoned", 200.0)),
        "exit_code": None,
        "message": "",
        "text": "rank 2 of gpt-1 on gpt-4; lost gpt-1; 2 incidents",
        "devices": ("gpu0", "gpu1", "MIG-GPU-1/2/0", "gpu3"),
    }
    return JobSummary(**(given | changes))


def test_labels_of_pods() -> None:
    keys = Keys(GROUP)
    found = job_status.labels(summary(), keys, {"gpt-2"})
    assert found["gpt-0"] == {keys.role: "active", keys.rank: "0_1_3", keys.device: "gpu0_gpu1_gpu3", keys.generation: "3"}
    assert (found["gpt-4"][keys.rank], found["gpt-4"][keys.device]) == ("2", "MIG-GPU-1.2.0")
    assert found["gpt-1"] == found["gpt-2"] == {keys.role: "retired", keys.rank: None, keys.device: None}
    assert job_status.labels(summary(devices=("", "", "", "")), keys, set())["gpt-0"][keys.device] is None, "as on a CPU"


@pytest.mark.parametrize(
    ("ranks", "text"), [([2], "2"), ([8, 9, 10], "8-10"), ([3, 7], "3_7"), (list(range(0, 200, 2)), "_".join(map(str, range(0, 46, 2))))]
)
def test_ranks_as_the_value_of_a_label(ranks: list[int], text: str) -> None:
    found = names.runs(ranks)
    assert len(found) <= 63 and found[0].isdigit() and found[-1].isdigit()
    assert found == text or found.startswith(text[:20])


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    before = [{"type": "Training", "status": "True", "lastTransitionTime": TIME}, {"type": "SparesReady", "status": "False"}]
    found = job_status.status(summary(), job({"conditions": before}), {"gpt-1": pod("gpt-1", node="w1")}, 1000.0)
    times = {each["type"]: each["lastTransitionTime"] for each in found["conditions"]}
    assert times["Training"] == TIME and times["SparesReady"] == "1970-01-01T00:16:40Z"
    assert (found["phase"], found["avoid"], found["formed"], found["exitCode"]) == ("Training", ["w1"], True, None)


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({"exit_code": 0, "phase": "ended"}, "Complete"),
        ({"exit_code": 7, "phase": "ended"}, "Failed"),
        ({"phase": "quiescing"}, "Recovering"),
        ({"phase": "forming", "complete": False}, "Forming"),
    ],
)
def test_phases(changes: dict[str, Any], phase: str) -> None:
    assert job_status.status(summary(**changes), job(), {}, 0.0)["phase"] == phase


def test_an_event_for_each_incident_that_is_not_counted_yet() -> None:
    (event,) = job_status.events(summary(), job({"incidents": 1}), 0.0)
    assert event["metadata"]["name"] == "gpt.u-1.incident-2"
    assert (event["type"], event["reason"]) == ("Normal", "RanksMoved")
    assert event["message"] == kubernetes_jobs.INCIDENT(number=2, text="w1 is cordoned")


def test_an_event_while_a_rank_waits_for_a_spare() -> None:
    waits = summary(ranks=("gpt-0", "", "", "gpt-0"), spares=0, phase="quiescing", incidents=())
    (event,) = job_status.events(waits, job(), 100.0)
    assert (event["metadata"]["name"], event["type"], event["reason"]) == ("gpt.u-1.no-spare-3", "Warning", "NoSpare")
    assert event["message"] == kubernetes_jobs.NO_SPARE(ranks="1-2")
    for other in ({"spares": 1}, {"phase": "training"}, {"ranks": ("gpt-0",) * 4}):
        assert not job_status.events(replace(waits, **other), job(), 100.0)


@pytest.mark.parametrize(("code", "kind", "reason"), [(0, "Normal", "Completed"), (7, "Warning", "Failed")])
def test_an_event_of_the_end(code: int, kind: str, reason: str) -> None:
    (event,) = job_status.events(summary(exit_code=code, message="rank 2: exit code 7", incidents=()), job(), 100.0)
    assert (event["type"], event["reason"]) == (kind, reason)
    assert event["message"] == kubernetes_jobs.ENDED(code=code, text=": rank 2: exit code 7")


def test_conditions_of_the_controller_stay() -> None:
    ours = {"type": "CreationFailed", "status": "True", "reason": "Refused", "message": "quota", "lastTransitionTime": TIME}
    found = job_status.status(summary(), job({"conditions": [ours]}), {}, 1000.0)
    assert ours in found["conditions"] and len(found["conditions"]) == 5
