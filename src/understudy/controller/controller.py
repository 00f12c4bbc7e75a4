"""The control loop: compare the objects of each job with the wanted ones after every change, and at intervals.

Several controllers may run; the holder of the lease works. Every change is made to what was just read, with its version or under a name
that only one writer can create, so a controller that has lost the lease without noticing does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from prometheus_client import Counter, Gauge

from understudy.common.bounds import plain
from understudy.controller import objects
from understudy.controller.changes import Changes
from understudy.controller.drain_requests import DrainRequests
from understudy.controller.reconcile import Plan, plan
from understudy.controller.refusals import Refusals
from understudy.controller.reports import Reports
from understudy.messages import controller as messages
from understudy.orchestrator.settings import Settings
from understudy.schedulers.base import SchedulerAway, SchedulerFailed
from understudy.schedulers.kubernetes import job_status, names
from understudy.schedulers.kubernetes.api import Api, Conflict, Exists, Missing, Object, ServerFailed, group_path, labelled, path
from understudy.schedulers.kubernetes.informer import Informer
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.resource import OVER, Job

WHOLE = 10.0  # seconds after which every job is reconciled although nothing has changed
SOON = 1.0  # seconds after which a job is reconciled again that waits for Kubernetes to remove something
PAUSE = 0.2  # seconds between two rounds: many changes come together
ENSURED = 60.0  # seconds after which the objects of a job other than its pods are checked again

JOBS = Gauge("understudy_controller_jobs", "Jobs, by phase.", ["phase"])
ERRORS = Counter("understudy_controller_errors", "Jobs that could not be looked after, each time.")


class Controller:
    def __init__(self, api: Api, group: str, image: str, namespace: str, drains: str, tell: Callable[[str], None]) -> None:
        """Create the controller.

        `image`: of orchestrators. `namespace`: the only one whose jobs are managed; "": all. `drains`: GROUP/VERSION of the cluster's
        DrainRequests; "": it has none. Raises `SchedulerFailed`.
        """
        self._api = api
        self._group = group
        self._keys = Keys(group)
        self._image = image
        self._tell = tell
        self._changes = Changes(self._keys)
        self._jobs = Informer(api, self._path(namespace), self._changes.of_job)
        self._pods = Informer(api, path("pods", namespace), self._changes.of_pod, labelSelector=self._keys.job)
        self._nodes = Informer(api, path("nodes", ""))
        self._budgets = objects.budget_version(api)
        self._drains = DrainRequests(api, drains, self._keys, self._changes.of_request) if drains else None
        self._reports = Reports(api)
        self._reported: dict[str, str] = {}
        self._refusals = Refusals()
        self._ensured: dict[str, float] = {}  # by the uid of a job, when that was last (CLOCK_MONOTONIC)

    def run(self, lead: Callable[[], bool]) -> None:
        """Work as long as `lead` returns True."""
        while lead():
            self._turn(self._changes.take(WHOLE))
            time.sleep(PAUSE)

    def _turn(self, changed: set[tuple[str, str]] | None) -> None:
        """Reconcile jobs. `changed`: jobs by namespace and name; None: all."""
        try:
            silent = {node["metadata"]["name"] for node in self._nodes.objects() if _is_silent(node)}
            jobs, pods = self._jobs.objects(), self._pods.objects()
            self._reported.pop("the cluster", None)
        except SchedulerFailed as error:
            self._fails("the cluster", error)
            return
        phases: dict[str, int] = {}
        for raw in jobs:
            phase = (raw.get("status") or {}).get("phase", "Waiting")
            phases[phase] = phases.get(phase, 0) + 1
            key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
            if changed is None or key in changed:
                self._attempt("/".join(key), partial(self._look_after, *key, silent), again=raw)
        JOBS.clear()
        for phase, count in phases.items():
            JOBS.labels(phase).set(count)
        if self._drains is not None:
            self._attempt("drain requests", partial(self._drains.turn, pods))

    def _attempt(self, what: str, work: Callable[[], None], again: Object | None = None) -> None:
        """Do one piece of work, and report its failure. `again`: the job to which it belongs."""
        try:
            work()
            self._reported.pop(what, None)
        except (Missing, Conflict):  # it has changed since it was read: try again the next time
            if again is not None:
                self._changes.of_job(again)
        except SchedulerFailed as error:
            self._fails(what, error)

    def _look_after(self, namespace: str, name: str, silent: set[str]) -> None:
        where = self._path(namespace, name)
        raw = self._api.read(where)
        try:
            job = Job.of(raw)
            Settings.from_json(job.settings())
        except ValueError as error:
            self._cannot_be(where, raw, str(error))
            return
        finalizers = raw["metadata"].get("finalizers") or []
        if not job.deleted and self._keys.finalizer not in finalizers:
            self._api.replace(where, _with_finalizers(raw, [*finalizers, self._keys.finalizer]))
            return
        there, _ = self._api.listed(path("pods", namespace), labelSelector=labelled({self._keys.job: name}))
        pending = self._refusals.pending(job.uid)
        made = plan(job, there, self._image, silent, _ending(job), may_create=pending is None)
        if made.failed:
            self._refuse(where, raw, made.failed)
            return
        self._carry_out(job, where, made)
        if not (job.deleted or job.over):
            self._provide(job, where, made, {pod["metadata"]["name"] for pod in there}, pending)

    def _carry_out(self, job: Job, where: str, made: Plan) -> None:
        counted = {"nextNumber": made.next_number, "podRestarts": made.restarts}
        changes = {key: value for key, value in counted.items() if job.status.get(key) != value}
        if (made.create or made.delete) and changes and not job.deleted:  # before it is done: a number is used once
            version = {"resourceVersion": job.raw["metadata"]["resourceVersion"]}
            self._api.patch(f"{where}/status", {"metadata": version, "status": changes})
        for name, uid, grace in made.delete:
            try:
                self._api.delete(path("pods", job.namespace, name), grace, uid)
            except (Missing, Conflict):
                continue
        if job.over or made.gone:
            self._ensured.pop(job.uid, None)
            self._refusals.forget(job.uid)
            objects.unmake(self._api, self._keys, job.namespace, job.name, job.uid)
        if made.gone:
            now = self._api.read(where)
            if now["metadata"]["uid"] == job.uid:  # not another one that was made after the finalizer was removed
                self._let_go(where, now)

    def _provide(self, job: Job, where: str, made: Plan, known: set[str], pending: SchedulerFailed | None) -> None:
        """Make the objects that are wanted, or show why they cannot be made.

        `known`: the names of pods with the job's label. `pending`: why pods with workers are not created yet, which is shown as before.
        """
        try:
            problem = self._ensure(job)
            if problem is not None and not job.status.get("formed"):
                raise problem
            self._create(job, where, made, known)
            if pending is None:
                self._refusals.forget(job.uid)
            if error := pending or problem:
                raise error
        except objects.Leftover as error:
            self._reports.show_failure(job, where, "LeftoverObjects", str(error))
            self._changes.of_job_later(job.raw, SOON)
        except objects.NameTaken as error:
            self._reports.show_failure(job, where, "NameTaken", str(error))
            raise
        except (Missing, Conflict):
            raise
        except SchedulerFailed as error:
            if not isinstance(error, SchedulerAway) or isinstance(error, ServerFailed):
                self._reports.show_failure(job, where, "Refused", str(error))
            raise
        else:
            if made.stuck:
                self._reports.show_failure(job, where, "PodCannotStart", made.stuck)
            else:
                self._reports.show_success(job, where)

    def _ensure(self, job: Job) -> SchedulerFailed | None:
        """Make the objects that the job needs; return why one cannot be made.

        A job that has formed gets its pods anyway: it trains with the existing objects.
        """
        if time.monotonic() - self._ensured.get(job.uid, -ENSURED) < ENSURED:
            return None
        try:
            objects.make(self._api, job, self._budgets)
        except SchedulerFailed as error:
            return error
        self._ensured[job.uid] = time.monotonic()
        return None

    def _create(self, job: Job, where: str, made: Plan, known: set[str]) -> None:
        """Create pods.

        If a pod with workers is rejected, no more are tried, because the others are like it. Before the job has formed, the same applies to
        an orchestrator: without it, pods with workers would only block devices.
        """
        created: list[Object] = []
        failed: SchedulerFailed | None = None
        for pod in made.create:
            name = pod["metadata"]["name"]
            try:
                created.append(self._api.create(path("pods", job.namespace), pod))
            except Exists:
                if name not in known:
                    failed = failed or objects.NameTaken(messages.NAME_TAKEN(kind="Pod", name=name, namespace=job.namespace))
                # Otherwise, one of ours, or of a deleted job of this name, is not gone yet. The job is reconciled when it is.
            except Conflict:  # others use the quota at the same time
                self._changes.of_job_later(job.raw, SOON)
            except SchedulerFailed as error:
                failed = failed or error
                labels = pod["metadata"]["labels"]
                if labels[self._keys.role] != names.ORCHESTRATOR:
                    self._changes.of_job_later(job.raw, self._refusals.note(job.uid, error))
                    self._take_back(job, where, made, int(labels[self._keys.number]), error)
                    break
                if not job.status.get("formed"):
                    break
        self._reports.show_created(job, created)
        if failed is not None:
            raise failed

    def _take_back(self, job: Job, where: str, made: Plan, number: int, error: SchedulerFailed) -> None:
        """Release the number of a pod that was rejected, and those after it.

        If a server that failed has made the pod anyway, its number counts when the pods are listed.
        """
        away = isinstance(error, SchedulerAway) and not isinstance(error, ServerFailed)
        if away or number < job.spec.total():
            return
        now = self._api.read(where)
        if now["metadata"]["uid"] == job.uid and (now.get("status") or {}).get("nextNumber") == made.next_number:
            version = {"resourceVersion": now["metadata"]["resourceVersion"]}
            self._api.patch(f"{where}/status", {"metadata": version, "status": {"nextNumber": number}})

    def _let_go(self, where: str, raw: Object) -> None:
        left = [each for each in raw["metadata"].get("finalizers") or [] if each != self._keys.finalizer]
        self._api.replace(where, _with_finalizers(raw, left))

    def _cannot_be(self, where: str, raw: Object, why: str) -> None:
        """End a job whose resource is invalid. If it is being deleted, its objects go with it."""
        metadata = raw["metadata"]
        if "deletionTimestamp" in metadata:
            objects.unmake(self._api, self._keys, metadata["namespace"], metadata["name"], metadata["uid"])
            self._let_go(where, raw)
        elif (phase := (raw.get("status") or {}).get("phase")) in OVER:
            return
        elif phase:
            raise SchedulerFailed(messages.CANNOT_BE(reason=why))
        else:
            self._refuse(where, raw, why)

    def _refuse(self, where: str, raw: Object, why: str) -> None:
        """Show on the resource why the job is invalid."""
        metadata, message = raw["metadata"], plain(why)[:1000]
        conditions = job_status.with_condition(raw.get("status") or {}, "Failed", True, "Refused", message, time.time())
        change = {"phase": "Failed", "message": message, "exitCode": 2, "conditions": conditions}
        self._api.patch(f"{where}/status", {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": change})
        self._reports.show_event(raw, "Warning", "Refused", message)
        self._tell(messages.REFUSED(job=f"{metadata['namespace']}/{metadata['name']}", reason=why))

    def _fails(self, what: str, error: SchedulerFailed) -> None:
        """Report the failure once, until it succeeds."""
        ERRORS.inc()
        if self._reported.get(what) != str(error):
            self._reported[what] = str(error)
            self._tell(messages.TRIES_AGAIN(what=what, problem=str(error)))

    def _path(self, namespace: str, name: str = "") -> str:
        return group_path(f"{self._group}/{names.VERSION}", names.PLURAL, namespace, name)


def _ending(job: Job) -> float:
    """Return the seconds since the job is over, according to its conditions, or deleted."""
    if job.deleted:
        return max(0.0, time.time() - job_status.moment(job.raw["metadata"]["deletionTimestamp"]))
    since = [
        job_status.moment(each.get("lastTransitionTime"))
        for each in job.status.get("conditions") or []
        if each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
    ]
    return max(0.0, time.time() - max(since)) if since else 0.0


def _with_finalizers(raw: Object, finalizers: list[str]) -> Object:
    return {**raw, "metadata": {**raw["metadata"], "finalizers": finalizers}}


def _is_silent(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "Unknown" for each in conditions)
