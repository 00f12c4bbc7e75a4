"""What the controller makes for a job, and what it shows of what it cannot make. A stand-in for the API server keeps objects."""

from __future__ import annotations

import time
from typing import cast

import pytest
from tests.message_texts import has
from tests.schedulers.kubernetes.objects import GROUP, job, pod, resource
from tests.schedulers.kubernetes.recorder import Object, Recorder, parsed

from understudy.controller import objects
from understudy.controller.changes import Changes
from understudy.controller.controller import Controller
from understudy.controller.refusals import FIRST, MOST, Refusals
from understudy.controller.reports import KIND, Reports
from understudy.messages import controller as messages
from understudy.messages import kubernetes_api
from understudy.schedulers.base import SchedulerAway, SchedulerFailed
from understudy.schedulers.kubernetes import job_status, names
from understudy.schedulers.kubernetes.api import Api, Conflict, ServerFailed, group_path, path

JOBS = group_path(f"{GROUP}/{names.VERSION}", names.PLURAL, "ml")
BINDINGS = group_path(objects.RBAC, "clusterrolebindings", "")
KEYS = names.Keys(GROUP)
QUOTA = kubernetes_api.REFUSED(request="POST pods", answer="exceeded quota: used: pods=3", status=403)


class Server(Recorder):
    def __init__(self) -> None:
        super().__init__(("/apis", {"groups": []}))
        self.refuses: dict[str, SchedulerFailed] = {}  # pods, by name
        self.refused: list[str] = []
        self.numbers: list[int] = []  # as they were written

    def create(self, path: str, body: Object) -> Object:
        if parsed(path)[1] == "pods" and body["metadata"]["name"] in self.refuses:
            self.refused.append(body["metadata"]["name"])
            raise self.refuses[body["metadata"]["name"]]
        return super().create(path, body)

    def patch(self, path: str, changes: Object) -> Object:
        if "nextNumber" in changes.get("status", {}):
            self.numbers.append(changes["status"]["nextNumber"])
        return super().patch(path, changes)

    def listed(self, path: str, **selectors: str) -> tuple[list[Object], str]:
        found, version = super().listed(path, **selectors)
        key, _, value = selectors.get("labelSelector", "").partition("=")
        return [each for each in found if not value or (each["metadata"].get("labels") or {}).get(key) == value], version


@pytest.fixture
def server() -> Server:
    made = Server()
    given = resource(orchestrators=1)
    given["metadata"]["finalizers"] = [KEYS.finalizer]
    made.put(JOBS, given)
    return made


def controller(server: Server) -> tuple[Controller, list[str]]:
    lines: list[str] = []
    return Controller(cast(Api, server), GROUP, "image", "", "", lines.append), lines


def turns(server: Server, count: int = 1) -> list[str]:
    """The messages of a new controller in so many turns, each of which looks at all jobs."""
    made, lines = controller(server)
    for _ in range(count):
        made._turn(None)
    return lines


def status(server: Server) -> Object:
    return cast(Object, server.objects[GROUP, names.PLURAL, "ml", "gpt"]["status"])


def pods_of(server: Server) -> list[str]:
    return sorted(name for (_, kind, _, name) in server.objects if kind == "pods")


def events(server: Server) -> list[tuple[str, str]]:
    return [(what["type"], what["reason"]) for (_, kind, _, _), what in server.objects.items() if kind == "events"]


def test_all_that_can_be_made(server: Server) -> None:
    turns(server)
    assert pods_of(server) == ["gpt-0", "gpt-1", "gpt-2", "gpt-orchestrator-0"]
    assert events(server) == [("Normal", "PodsCreated")] and not job_status.condition(status(server), KIND)


@pytest.mark.parametrize("error", [SchedulerFailed(QUOTA), ServerFailed(kubernetes_api.REFUSED(request="", answer="", status=500))])
def test_a_pod_that_is_refused(server: Server, error: SchedulerFailed) -> None:
    """A quota or Pod Security answers 403, a webhook that is away 500. The others are like it, so they are not tried."""
    server.refuses["gpt-1"] = error
    (lines,) = turns(server, 3)
    assert has(lines, messages.TRIES_AGAIN, what="ml/gpt")
    assert pods_of(server) == ["gpt-0", "gpt-orchestrator-0"]
    shown = job_status.condition(status(server), KIND)
    assert (shown["status"], shown["reason"], shown["message"]) == ("True", "Refused", str(error))
    assert events(server) == [("Normal", "PodsCreated"), ("Warning", KIND)], "once"
    server.refuses.clear()
    turns(server)
    assert pods_of(server) == ["gpt-0", "gpt-1", "gpt-2", "gpt-orchestrator-0"]
    assert (job_status.condition(status(server), KIND)["status"], len(events(server))) == ("False", 3)


def test_a_server_that_is_away_is_no_refusal(server: Server) -> None:
    server.refuses["gpt-0"] = SchedulerAway("no answer")
    turns(server)
    assert not job_status.condition(status(server), KIND) and events(server) == [("Normal", "PodsCreated")]


@pytest.mark.parametrize(("formed", "there"), [(False, []), (True, ["gpt-0", "gpt-1", "gpt-2"])])
def test_an_orchestrator_that_is_refused(server: Server, formed: bool, there: list[str]) -> None:
    """Without one, pods with workers are useless; alongside a running one, they are not."""
    status(server)["formed"] = formed
    server.refuses["gpt-orchestrator-0"] = SchedulerFailed(QUOTA)
    turns(server)
    assert pods_of(server) == there or (formed and pods_of(server) == ["gpt-3", "gpt-4", "gpt-5"])
    assert job_status.condition(status(server), KIND)["status"] == "True"


@pytest.mark.parametrize("others", [(), ("gpt-4",)])
def test_the_number_of_a_pod_that_was_refused_is_not_used_up(server: Server, others: tuple[str, ...]) -> None:
    status(server)["formed"] = True
    for number in range(2):
        server.put(path("pods", "ml"), pod(f"gpt-{number}", number=number, node="w1"))
    server.refuses |= dict.fromkeys(("gpt-3", *others), SchedulerFailed(QUOTA))
    turns(server, 3)
    assert status(server)["nextNumber"] == 3 and "gpt-4" not in pods_of(server)
    server.refuses.clear()
    turns(server)
    assert pods_of(server)[:3] == ["gpt-0", "gpt-1", "gpt-3"] and status(server)["nextNumber"] == 4


@pytest.mark.parametrize(
    ("error", "numbers"),
    [
        (SchedulerFailed(QUOTA), [4, 3]),
        (ServerFailed(kubernetes_api.REFUSED(request="", answer="", status=500)), [4, 3]),
        (SchedulerAway("no answer"), [4]),  # the pod may have been made
    ],
)
def test_a_pod_that_is_refused_is_not_tried_again_at_once(server: Server, error: SchedulerFailed, numbers: list[int]) -> None:
    """What is written for an attempt is a change of the job, after which it is looked at again."""
    status(server)["formed"] = True
    for number in range(2):
        server.put(path("pods", "ml"), pod(f"gpt-{number}", number=number, node="w1"))
    server.refuses["gpt-3"] = error
    made, lines = controller(server)
    now = [0.0]
    made._refusals = Refusals(lambda: now[0])
    for _ in range(5):
        made._turn(None)
    assert (server.refused, server.numbers, len(lines)) == (["gpt-3"], numbers, 1)
    assert bool(job_status.condition(status(server), KIND)) == (len(numbers) == 2), "it is shown until the next attempt"
    assert made._changes._later.keys() == {("ml", "gpt")}
    del server.objects["", "pods", "ml", "gpt-orchestrator-0"]
    made._turn(None)
    assert "gpt-orchestrator-0" in pods_of(server), "which is not held up"
    server.refuses.clear()
    now[0] = FIRST
    made._turn(None)
    assert len(pods_of(server)) == 4 and made._refusals.pending("u-1") is None
    assert job_status.condition(status(server), KIND).get("status") != "True"


def test_the_time_until_the_next_attempt_grows() -> None:
    now = [0.0]
    refusals, error = Refusals(lambda: now[0]), SchedulerFailed(QUOTA)
    delays = []
    for _ in range(7):
        delays.append(refusals.note("u-1", error))
        assert refusals.pending("u-1") is error and refusals.pending("u-2") is None
        now[0] += delays[-1]
        assert refusals.pending("u-1") is None
    assert delays == [FIRST, 2.0, 4.0, 8.0, 16.0, MOST, MOST]
    refusals.forget("u-1")
    assert refusals.note("u-1", error) == FIRST


def test_how_much_of_a_quota_is_used_is_no_news(server: Server) -> None:
    reports = Reports(cast(Api, server))
    for used, more in (("3", 1), ("4", 0), ("5 of services", 1)):
        before = len(events(server))
        reports.show_failure(job(status(server)), f"{JOBS}/gpt", "Refused", f"exceeded quota: used {used}")
        assert len(events(server)) == before + more
        assert job_status.condition(status(server), KIND)["message"] == f"exceeded quota: used {used}"


def test_a_pod_whose_image_is_tried_again_and_again_is_reported_once(server: Server) -> None:
    """Its reason goes back and forth."""
    stuck = pod("gpt-1", phase="Pending", number=1, node="w1")
    for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
        stuck["status"]["containerStatuses"] = [{"state": {"waiting": {"reason": reason}}}]
        server.put(path("pods", "ml"), stuck)
        turns(server)
        shown = job_status.condition(status(server), KIND)
        assert shown["reason"] == "PodCannotStart" and has(shown["message"], messages.POD_CANNOT_START, pod="gpt-1", reason=reason)
    assert events(server).count(("Warning", KIND)) == 1
    stuck["status"] = {"phase": "Running"}
    server.put(path("pods", "ml"), stuck)
    turns(server)
    assert job_status.condition(status(server), KIND)["status"] == "False"


def test_a_pod_of_another_is_in_the_way(server: Server) -> None:
    """That of a job called `gpt-orchestrator` may have the name of an orchestrator."""
    server.put(path("pods", "ml"), {"metadata": {"name": "gpt-1", "labels": {}}, "spec": {}, "status": {}})
    made, lines = controller(server)
    made._turn(None)
    assert job_status.condition(status(server), KIND)["reason"] == "NameTaken" and lines
    assert has(job_status.condition(status(server), KIND)["message"], messages.NAME_TAKEN, kind="Pod", name="gpt-1")
    assert "gpt-2" in pods_of(server)


def test_a_pod_of_a_deleted_job_of_its_name_is_waited_for(server: Server) -> None:
    left = pod("gpt-1", number=1, ownerReferences=[{"kind": names.KIND, "name": "gpt", "uid": "u-0"}])
    server.put(path("pods", "ml"), left)
    turns(server)
    assert not job_status.condition(status(server), KIND)
    assert server.objects["", "pods", "ml", "gpt-1"]["metadata"]["ownerReferences"][0]["uid"] == "u-0", "it is not touched"
    del server.objects["", "pods", "ml", "gpt-1"]
    turns(server)
    assert server.objects["", "pods", "ml", "gpt-1"]["metadata"]["ownerReferences"][0]["uid"] == "u-1"


OTHER = [{"apiVersion": "v1", "kind": names.KIND, "name": "gpt", "uid": "u-0"}]


DEPLOYMENT = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "gpt", "uid": "d"}]
OWNED = [where for where, what in objects.wanted(job(), "policy/v1") if what["kind"] not in ("ClusterRoleBinding", "Secret")]


@pytest.mark.parametrize("where", OWNED)
@pytest.mark.parametrize(("owners", "reason"), [(OTHER, "LeftoverObjects"), (DEPLOYMENT, "NameTaken")])
@pytest.mark.parametrize("formed", [False, True])
def test_an_object_of_another_owner(server: Server, where: str, owners: list[Object], reason: str, formed: bool) -> None:
    """Each that the job needs. A job that trains gets its pods, and what else it needs, all the same."""
    status(server)["formed"] = formed
    (name,) = [what["metadata"]["name"] for place, what in objects.wanted(job(), "policy/v1") if place == where]
    server.put(where, {"metadata": {"name": name, "ownerReferences": owners}})
    turns(server, 2)
    assert job_status.condition(status(server), KIND)["reason"] == reason
    assert bool(pods_of(server)) == formed and (("Warning", KIND) in events(server)) == (reason == "NameTaken")
    kinds = {kind for (_, kind, _, _) in server.objects}
    assert {"serviceaccounts", "rolebindings", "clusterrolebindings", "secrets", "services", "networkpolicies"} <= kinds


@pytest.mark.parametrize("where", OWNED)
@pytest.mark.parametrize("same", [True, False])
def test_an_object_without_an_owner(server: Server, where: str, same: bool) -> None:
    """It serves if it equals ours: an account that was made beforehand, or what an orphaning deletion has left."""
    (there,) = [what for place, what in objects.wanted(job(), "policy/v1") if place == where]
    there["metadata"].pop("ownerReferences")
    there["metadata"].pop("labels")
    account = there["kind"] == "ServiceAccount"
    there |= {"imagePullSecrets": [{"name": "mine"}]} if account else {"spec": {**there.get("spec", {}), "added": "by the server"}}
    if not same:
        there |= {"spec": {}, "subjects": []}
    server.put(where, there)
    turns(server)
    assert bool(pods_of(server)) == (same or account)
    assert job_status.condition(status(server), KIND).get("reason") == (None if same or account else "NameTaken")


def test_an_object_that_is_refused_keeps_no_pods_from_a_job_that_trains(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade without the new rights."""

    def make(api: Api, job: object, budgets: str) -> None:
        raise SchedulerFailed("GET networkpolicies: forbidden (403)")

    monkeypatch.setattr(objects, "make", make)
    turns(server)
    assert pods_of(server) == []
    status(server)["formed"] = True
    turns(server)
    assert len(pods_of(server)) == 4 and job_status.condition(status(server), KIND)["reason"] == "Refused"


def test_the_secret_of_another_job_is_not_taken(server: Server) -> None:
    server.put(path("secrets", "ml"), {"metadata": {"name": names.token("gpt", "u-0"), "ownerReferences": OTHER}})
    turns(server)
    assert {name for (_, kind, _, name) in server.objects if kind == "secrets"} == {"gpt-token-u-0", "gpt-token-u-1"}


@pytest.mark.parametrize(("labels", "stays"), [({KEYS.uid: "u-0"}, False), ({KEYS.uid: "u-1"}, True), ({}, True)])
def test_the_right_to_read_nodes_of_another_job(server: Server, labels: Object, stays: bool) -> None:
    """It has no owner with which it would go. One without the uid is that of an earlier version."""
    name = objects.binding("ml", "gpt")
    server.put(BINDINGS, {"metadata": {"name": name, "labels": labels, "uid": "b"}})
    objects.make(cast(Api, server), job(), "policy/v1")
    found = server.objects[objects.RBAC.partition("/")[0], "clusterrolebindings", "", name]["metadata"]
    assert (found["uid"] == "b") == stays and (stays or found["labels"][KEYS.uid] == "u-1")
    objects.unmake(cast(Api, server), KEYS, "ml", "gpt", "u-2" if labels else "u-1")
    left = [key for key in server.objects if key[1] == "clusterrolebindings"]
    assert bool(left) == bool(labels), "a job that is gone takes only its own away"


def test_a_job_that_is_made_again_meanwhile_gets_nothing_of_the_report(server: Server) -> None:
    server.put(JOBS, resource() | {"metadata": resource()["metadata"] | {"uid": "u-2"}})
    Reports(cast(Api, server)).show_failure(job(), f"{JOBS}/gpt", "Refused", "exceeded quota")
    assert not status(server)


def test_a_job_is_looked_at_again_later() -> None:
    changes = Changes(KEYS)
    assert changes.take(60.0) is None
    began = time.monotonic()
    changes.of_job_later(resource(), 0.2)
    assert changes.take(60.0) == {("ml", "gpt")} and time.monotonic() - began >= 0.2


def test_a_conflict_is_no_refusal(server: Server) -> None:
    """Others count against the quota at the same time: it goes well a moment later."""
    server.refuses["gpt-1"] = Conflict("please try again")
    made, lines = controller(server)
    made._turn(None)
    assert not lines and "gpt-2" in pods_of(server) and not job_status.condition(status(server), KIND)
    server.refuses.clear()
    made._changes.take(0.0)
    assert made._changes.take(60.0) == {("ml", "gpt")}
