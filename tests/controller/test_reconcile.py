"""What the controller does about a job's pods, and what these look like."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.message_texts import refused
from tests.schedulers.kubernetes.objects import GROUP, job, pod, resource

from understudy.controller.reconcile import FAREWELL, Plan, plan
from understudy.messages import controller, kubernetes_jobs
from understudy.messages.base import Message
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.pods import orchestrator, worker
from understudy.schedulers.kubernetes.resource import Job

WORKERS = [pod(f"gpt-{number}", number=number, node=f"w{number}") for number in range(3)]
LEADERS = [pod(f"gpt-orchestrator-{number}", "orchestrator", number=number, node=f"w{number}") for number in range(2)]
FORMED = {"formed": True}


def planned(of: Job, there: list[Object], silent: set[str] | None = None, ending: float = 0.0) -> Plan:
    return plan(of, there, "image", silent or set(), ending)


def created(made: Plan) -> list[str]:
    return [each["metadata"]["name"] for each in made.create]


def test_a_new_job_gets_its_orchestrators_and_pods() -> None:
    made = planned(job(), [])
    assert created(made) == ["gpt-orchestrator-0", "gpt-orchestrator-1", "gpt-0", "gpt-1", "gpt-2"]
    assert not made.delete


def test_nothing_is_done_where_all_are_there() -> None:
    assert planned(job(), [*WORKERS, *LEADERS]) == Plan(next_number=3)
    assert planned(job(FORMED), [*WORKERS, *LEADERS]) == Plan(next_number=3)


def test_before_it_has_formed_a_pod_comes_again_under_its_number() -> None:
    assert created(planned(job(), [WORKERS[0], WORKERS[2], *LEADERS])) == ["gpt-1"]


@pytest.mark.parametrize("restarts", [0, 2, 3])
def test_before_it_has_formed_pods_may_fail_so_often(restarts: int) -> None:
    failed = pod("gpt-1", phase="Failed", number=1)
    failed["status"]["containerStatuses"] = [{"state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]
    made = planned(job({"podRestarts": restarts}), [WORKERS[0], failed, WORKERS[2], *LEADERS])
    if restarts < 3:
        assert (made.delete, made.restarts, made.failed) == ([("gpt-1", "u-gpt-1", 5)], restarts + 1, "")
    else:
        assert made.failed == kubernetes_jobs.POD_FAILED(pod="gpt-1", reason="exit code 2 (Error)")


@pytest.mark.parametrize("formed", [False, True])
@pytest.mark.parametrize(
    ("waiting", "reported"),
    [
        ({"reason": "CreateContainerConfigError", "message": "container has runAsNonRoot and image will run as root"}, True),
        ({"reason": "ImagePullBackOff"}, True),
        ({"reason": "ContainerCreating"}, False),
        ({"reason": "PodInitializing"}, False),
    ],
)
def test_a_pod_that_cannot_start_as_it_is(waiting: Object, reported: bool, formed: bool) -> None:
    waits = pod("gpt-1", phase="Pending", number=1, node="w1")
    waits["status"]["containerStatuses"] = [{"state": {"running": {}}}, {"state": {"waiting": waiting}}]
    made = planned(job({"formed": formed}), [WORKERS[0], waits, WORKERS[2], *LEADERS])
    text = f": {waiting['message']}" if "message" in waiting else ""
    assert made.stuck == (controller.POD_CANNOT_START(pod="gpt-1", reason=waiting["reason"], message=text) if reported else "")
    assert not made.create and not made.delete, "it is left as it is"


def test_a_missing_pod_is_replaced_by_a_spare_with_a_new_number() -> None:
    made = planned(job({**FORMED, "avoid": ["w1"]}), [WORKERS[0], WORKERS[2], *LEADERS])
    assert created(made) == ["gpt-3"] and made.next_number == 4
    (replacement,) = made.create
    settings = json.loads(next(each["value"] for each in replacement["spec"]["containers"][0]["env"] if each["name"] == "UNDERSTUDY_POD"))
    assert (settings["number"], settings["spares"], settings["claim"]) == (3, 1, -1)
    terms = replacement["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["w1"]}]}]


@pytest.mark.parametrize(
    "left",
    [pod("gpt-1", number=1, deletionTimestamp="2026-11-26T00:00:00Z"), pod("gpt-1", "retired", number=1)],
    ids=["being deleted", "retired"],
)
def test_one_that_is_about_to_go_is_replaced_at_once(left: Object) -> None:
    assert created(planned(job(FORMED), [WORKERS[0], left, WORKERS[2], *LEADERS])) == ["gpt-3"]


def test_a_pending_pod_with_an_outdated_exclusion_is_created_again() -> None:
    waits = worker(job(FORMED), 3, ["w1", "w2"])
    waits["metadata"] |= {"uid": "u-gpt-3"}
    there = [WORKERS[0], WORKERS[2], waits, *LEADERS]
    assert planned(job({**FORMED, "avoid": ["w1", "w2"]}), there) == Plan(next_number=4)
    made = planned(job({**FORMED, "avoid": ["w2"]}), there)
    assert (made.delete, created(made)) == ([("gpt-3", "u-gpt-3", 5)], ["gpt-4"])
    waits["spec"]["nodeName"] = "w3"
    assert planned(job(FORMED), there) == Plan(next_number=4), "it has a place"


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_preferences_of_the_template_are_no_reason_to_create_a_pod_again(operator: str) -> None:
    """However long it waits for them: the next one would have them, too."""
    wish = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": operator, "values": ["w9"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wish]}}
    wishes = job(FORMED)
    wishes.spec.template["spec"]["affinity"] = {"nodeAffinity": required}
    for avoid in ([], ["w1"]):
        waits = worker(wishes, 3, avoid)
        waits["metadata"] |= {"uid": "u-gpt-3"}
        made = planned(wishes, [WORKERS[0], WORKERS[2], waits, *LEADERS])
        assert (made.delete, created(made)) == (([("gpt-3", "u-gpt-3", 5)], ["gpt-4"]) if avoid else ([], []))


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Pending"])
def test_one_that_has_ended_is_the_orchestrators_affair(phase: str) -> None:
    assert planned(job(FORMED), [WORKERS[0], pod("gpt-1", phase=phase, number=1), WORKERS[2], *LEADERS]) == Plan(next_number=3)


@pytest.mark.parametrize(("status", "there", "name"), [(9, [7, 8], "gpt-9"), (0, [7, 8], "gpt-9"), (12, [0, 1], "gpt-12")])
def test_no_number_is_used_twice(status: int, there: list[int], name: str) -> None:
    pods = [pod(f"gpt-{number}", number=number) for number in there]
    assert created(planned(job({**FORMED, "nextNumber": status}), [*pods, *LEADERS])) == [name]


def test_claimed_pods_do_not_count() -> None:
    claimed = pod("gpt-claim-0", number=1 << 20, claim=0)
    assert planned(job(FORMED), [*WORKERS, claimed, *LEADERS]) == Plan(next_number=3)


def test_an_orchestrator_is_created_again() -> None:
    ended = pod("gpt-orchestrator-0", "orchestrator", "Succeeded", number=0)
    assert planned(job(), [*WORKERS, ended, LEADERS[1]]).delete == [("gpt-orchestrator-0", "u-gpt-orchestrator-0", 5)]
    assert created(planned(job(), [*WORKERS, LEADERS[1]])) == ["gpt-orchestrator-0"]
    silent = planned(job(), [*WORKERS, *LEADERS], silent={"w1"})
    assert silent.delete == [("gpt-orchestrator-1", "u-gpt-orchestrator-1", 0)]


def test_a_job_that_is_deleted_ends_in_order_first() -> None:
    of = job(deleted="2026-11-26T00:00:00Z")
    assert planned(of, [*WORKERS, *LEADERS], ending=FAREWELL - 1) == Plan(next_number=3)
    waits = pod("gpt-1", phase="Pending", number=1)
    assert planned(of, [WORKERS[0], waits, *LEADERS], ending=1.0).delete == [("gpt-1", "u-gpt-1", 5)]
    late = planned(of, [*WORKERS, *LEADERS], silent={"w2"}, ending=FAREWELL)
    assert [(name, grace) for name, _, grace in late.delete] == [
        *(("gpt-0", 5), ("gpt-1", 5), ("gpt-2", 0)),
        *(("gpt-orchestrator-0", 5), ("gpt-orchestrator-1", 5)),
    ]
    assert not late.gone and not late.create
    assert planned(of, [], ending=1.0).gone


def test_what_a_job_that_is_over_has_printed_stays() -> None:
    ended = [pod(f"gpt-{number}", phase="Succeeded", number=number) for number in range(3)]
    over = job({"phase": "Complete", **FORMED})
    assert planned(over, ended, ending=1000.0) == Plan(next_number=3)
    assert [name for name, _, _ in planned(over, [*ended, *LEADERS], ending=1000.0).delete] == ["gpt-orchestrator-0", "gpt-orchestrator-1"]
    assert not planned(over, [*ended, *LEADERS], ending=1.0).delete


@pytest.mark.parametrize(
    ("spec", "message", "arguments"),
    [
        ({"pods": 0}, kubernetes_jobs.BAD_FIELD, {"field": "pods"}),
        ({"pods": "many"}, kubernetes_jobs.BAD_FIELD, {"field": "pods"}),
        ({"template": None}, kubernetes_jobs.BAD_FIELD, {"field": "template"}),
        ({"spares": {"pods": 1, "prepared": 2}}, kubernetes_jobs.TOO_MANY_PREPARED, {"prepared": 2}),
        ({"timeouts": {"heartbeat": 100.0}}, kubernetes_jobs.BAD_TIMEOUTS, {}),
        ({"orchestrators": 9}, kubernetes_jobs.BAD_FIELD, {"field": "orchestrators"}),
    ],
)
def test_what_a_job_cannot_be(spec: dict[str, Any], message: Message, arguments: dict[str, Any]) -> None:
    with refused(ValueError, message, **arguments):
        Job.of(resource(**spec))


def test_a_worker_pod_keeps_the_settings_of_its_template() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"team": "a", f"{GROUP}/role": "active"}, "annotations": {"n": "1"}},
        "spec": {
            "containers": [{"name": "t", "image": "i", "env": [{"name": "A", "value": "1"}]}, {"name": "side", "image": "j"}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 600,
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a"}]}, {}]}
                }
            },
        },
    }
    of = job(template=template, ranksPerPod=8, topologyKey="rack", spares={"pods": 1, "floating": {"pods": 1, "priorityClassName": "high"}})
    made = worker(of, 1, ["w9"])
    spec = made["spec"]
    assert made["metadata"]["labels"] == {"team": "a", f"{GROUP}/job": "gpt", f"{GROUP}/role": "spare", f"{GROUP}/number": "1"}
    assert [spec[key] for key in ("restartPolicy", "terminationGracePeriodSeconds", "hostname", "subdomain")] == [
        "Never",
        600,
        "gpt-1",
        "gpt",
    ]
    assert spec["containers"][0]["env"][0]["name"] == "A" and "env" not in spec["containers"][1]
    (_, ours) = spec["tolerations"]
    assert ours == {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchExpressions"][-1]["values"] for term in terms] == [["w9"], ["w9"]]
    claimed = worker(of, 1 << 20, [], claim=4, near="r1")
    assert claimed["metadata"]["name"] == "gpt-claim-4" and claimed["spec"]["priorityClassName"] == "high"
    (near,) = claimed["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert near["preference"] == {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
    assert "priorityClassName" not in spec and template["spec"]["restartPolicy"] == "Always", "the resource itself is left alone"


def test_an_orchestrators_pod_has_no_more_than_it_needs() -> None:
    made = orchestrator(job(tlsSecretName="certs"), 1, "image", ["w1"])
    container = made["spec"]["containers"][0]
    words = container["command"]
    assert words[words.index("--members") + 1] == ",".join(f"https://gpt-orchestrator-{n}.gpt.ml.svc:29400" for n in range(2))
    assert json.loads(words[words.index("--spec-json") + 1])["spec"]["world_size"] == 2
    assert made["spec"]["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert not any("token" in word for word in words), "secrets are in no command line"
    assert {each["name"]: each.get("value") for each in container["env"]}["UNDERSTUDY_KUBERNETES_JOB"] == "understudy.dev/ml/gpt/u-1"
