"""The state of a job on Kubernetes: labels of its pods, the status of its resource, events."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from understudy.common.bounds import plain
from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import JobSummary
from understudy.schedulers.kubernetes import names
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.resource import Job

PHASES = {"forming": "Forming", "training": "Training", "quiescing": "Recovering", "resuming": "Recovering"}
MOST = 50  # nodes that are avoided at a time


def labels(now: JobSummary, keys: Keys, retired: Collection[str]) -> dict[str, dict[str, str | None]]:
    """Return labels by pod; all other pods are spares (`names.spare`). None: the label is removed."""
    ranks: dict[str, list[int]] = {}
    for rank, node in enumerate(now.ranks):
        ranks.setdefault(node, []).append(rank)
    generation = str(now.generation)
    found: dict[str, dict[str, str | None]] = {
        node: {
            keys.role: names.ACTIVE,
            keys.rank: names.runs(there),
            keys.device: names.devices([now.devices[rank] for rank in there if rank < len(now.devices)]),
            keys.generation: generation,
        }
        for node, there in ranks.items()
        if node
    }
    for node in {*now.lost, *retired}:
        found[node] = {keys.role: names.RETIRED, keys.rank: None, keys.device: None}
    return found


def status(now: JobSummary, job: Job, pods: Mapping[str, Object], time: float) -> Object:
    """Return the status as a merge patch. `pods`: existing pods, by name."""
    over = now.exit_code is not None
    phase = ("Complete" if now.exit_code == 0 else "Failed") if over else PHASES.get(now.phase, "Forming")
    missing = sum(not node for node in now.ranks) if now.complete else len(now.ranks)
    wanted = job.spec.spares.pods * job.spec.ranks_per_pod
    warm = kubernetes_jobs.SPARES_WARM(spares=now.spares, wanted=wanted)
    conditions = [
        ("Training", phase == "Training" and not missing, "AllRanksTrain" if not missing else "RanksMissing", now.text),
        ("SparesReady", now.spares >= wanted, "Warm" if now.spares >= wanted else "TooFew", warm),
        ("Complete", phase == "Complete", "ScriptEnded" if phase == "Complete" else "NotYet", now.message if over else ""),
        ("Failed", phase == "Failed", "JobFailed" if phase == "Failed" else "NotFailed", now.message if over else ""),
    ]
    return {
        "observedGeneration": job.raw["metadata"].get("generation", 0),
        "phase": phase,
        "step": now.step,
        "generation": now.generation,
        "incidents": len(now.incidents),
        "spares": now.spares,
        "formed": now.complete or job.status.get("formed", False),
        "ranks": [node or None for node in now.ranks] if len(now.ranks) <= 1024 else None,
        "avoid": sorted(_hosts(now, pods))[:MOST],
        "story": plain(now.text)[:1000] or None,  # null instead of ""
        "exitCode": now.exit_code,
        "message": plain(now.message)[:1000] or None,
        "conditions": _with_conditions(job.status, conditions, time),
    }


def _with_conditions(status: Object, wanted: list[tuple[str, bool, str, str]], time: float) -> list[Object]:
    """Return the conditions with the wanted ones; those of the controller stay."""
    for kind, holds, reason, message in wanted:
        status = {"conditions": with_condition(status, kind, holds, reason, message, time)}
    return list(status["conditions"])


def _hosts(now: JobSummary, pods: Mapping[str, Object]) -> set[str]:
    """Return Kubernetes' nodes with a lost pod that still exists: its kubelet does not answer either."""
    return {host for name in now.lost if (host := (pods.get(name) or {}).get("spec", {}).get("nodeName"))}


def condition(status: Object, kind: str) -> Object:
    """The condition of this type; empty if there is none."""
    return next((each for each in status.get("conditions") or [] if each.get("type") == kind), {})


def with_condition(status: Object, kind: str, holds: bool, reason: str, message: str, time: float) -> list[Object]:
    """Return the conditions with this one, which replaces one of the same type and keeps the time of its last change."""
    old = condition(status, kind)
    value = str(holds)
    since = old.get("lastTransitionTime") if old.get("status") == value else None
    made = {"type": kind, "status": value, "reason": reason, "message": plain(message)[:1000] or reason}
    others = [each for each in status.get("conditions") or [] if each.get("type") != kind]
    return [*others, {**made, "lastTransitionTime": since or stamp(time)}]


def events(now: JobSummary, job: Job, time: float) -> list[Object]:
    """Return one event for each incident that the status does not count yet, one while ranks wait for a spare, and one for the end of the
    job.
    """
    found = [
        event(
            job,
            f"{job.name}.{job.uid[:8]}.incident-{incident.number}",
            "Normal" if incident.planned else "Warning",
            "RanksMoved" if incident.planned else "RanksReplaced",
            kubernetes_jobs.INCIDENT(number=incident.number, text=incident.text),
            incident.at,
        )
        for incident in now.incidents
        if incident.number > int(job.status.get("incidents") or 0)
    ]
    name = f"{job.name}.{job.uid[:8]}"
    vacant = [rank for rank, node in enumerate(now.ranks) if not node]
    if now.exit_code is not None:
        ended = kubernetes_jobs.ENDED(code=now.exit_code, text=f": {now.message}" if now.message else "")
        kind, reason = ("Warning", "Failed") if now.exit_code else ("Normal", "Completed")
        found.append(event(job, f"{name}.ended", kind, reason, ended, time))
    elif now.phase == "quiescing" and vacant and not now.spares:
        waits = kubernetes_jobs.NO_SPARE(ranks=names.runs(vacant).replace("_", ", "))
        found.append(event(job, f"{name}.no-spare-{now.generation}", "Warning", "NoSpare", waits, time))
    return found


def refusal(job: Job, message: str, at: float) -> Object:
    """Return the event of a rejected claimed pod.

    Its name is made from the message without numbers, so the server rejects a second event for the same reason as long as it keeps the
    first. Each attempt has another number, and a quota another usage.
    """
    digest = hashlib.sha256(without_numbers(message).encode()).hexdigest()[:12]
    return event(job, f"{job.name}.{job.uid[:8]}.refused-{digest}", "Warning", "CreationFailed", message, at)


def without_numbers(message: str) -> str:
    """Return a rejection message without its numbers: another usage of a quota is not a new reason."""
    return re.sub(r"\d+", "", message)


def event(job: Job, name: str, kind: str, reason: str, message: str, at: float) -> Object:
    """Return an event of the job's resource, as `kubectl describe` shows it. The server rejects a second one of the same name."""
    return event_of(job.raw, name, kind, reason, message, at)


def event_of(raw: Object, name: str, kind: str, reason: str, message: str, at: float) -> Object:
    """Return an event of a resource that may not be a valid job. `at`: unix time."""
    metadata = raw["metadata"]
    about = {"apiVersion": raw["apiVersion"], "kind": names.KIND, **{key: metadata[key] for key in ("name", "namespace", "uid")}}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "involvedObject": about,
        "type": kind,
        "reason": reason,
        "message": plain(message)[:1000],
        "source": {"component": names.FIELDS},
        "firstTimestamp": stamp(at),
        "lastTimestamp": stamp(at),
        "count": 1,
    }


def stamp(time: float) -> str:
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str | None) -> float:
    """Return the unix time of a time in Kubernetes' format; 0 if it is invalid."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return 0.0
