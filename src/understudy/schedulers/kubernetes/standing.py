"""How a job stands, as Kubernetes shows it: labels of its pods, the status of its resource, events."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from understudy.common.bounds import plain
from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import Standing
from understudy.schedulers.kubernetes import names
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.resource import Job

PHASES = {"forming": "Forming", "training": "Training", "quiescing": "Recovering", "resuming": "Recovering"}
MOST = 50  # nodes that are avoided at a time


def labels(now: Standing, keys: Keys, retired: Collection[str]) -> dict[str, dict[str, str | None]]:
    """By pod; all others are spares (`names.spare`). None: it has no such label any more."""
    ranks: dict[str, list[int]] = {}
    for rank, node in enumerate(now.ranks):
        ranks.setdefault(node, []).append(rank)
    generation = str(now.generation)
    found: dict[str, dict[str, str | None]] = {
        node: {
            keys.role: names.ACTIVE,
            keys.rank: names.runs(held),
            keys.device: names.devices([now.devices[rank] for rank in held if rank < len(now.devices)]),
            keys.generation: generation,
        }
        for node, held in ranks.items()
        if node
    }
    for node in {*now.lost, *retired}:
        found[node] = {keys.role: names.RETIRED, keys.rank: None, keys.device: None}
    return found


def status(now: Standing, job: Job, pods: Mapping[str, Object], time: float) -> Object:
    """A merge patch. `pods`: those that are there, by name."""
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
        "story": plain(now.text)[:1000] or None,  # nothing is said rather than ""
        "exitCode": now.exit_code,
        "message": plain(now.message)[:1000] or None,
        "conditions": _conditions(conditions, job.status.get("conditions") or [], time),
    }


def _hosts(now: Standing, pods: Mapping[str, Object]) -> set[str]:
    """Kubernetes' nodes on which a pod was lost, and is still there because nobody has ended it: its kubelet does not answer either."""
    return {host for name in now.lost if (host := (pods.get(name) or {}).get("spec", {}).get("nodeName"))}


def _conditions(wanted: list[tuple[str, bool, str, str]], before: list[Object], time: float) -> list[Object]:
    """A condition keeps the time at which it last changed."""
    known = {each.get("type"): each for each in before}
    found = []
    for kind, holds, reason, message in wanted:
        value = str(holds)
        old = known.get(kind) or {}
        since = old.get("lastTransitionTime") if old.get("status") == value else None
        found.append(
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": plain(message)[:1000] or reason,
                "lastTransitionTime": since or stamp(time),
            }
        )
    return found


def events(now: Standing, job: Job) -> list[Object]:
    """One for each incident that the status does not count yet."""
    return [
        event(
            job,
            f"{job.name}.{job.uid[:8]}.incident-{told.number}",
            "Normal" if told.planned else "Warning",
            "RanksMoved" if told.planned else "RanksReplaced",
            kubernetes_jobs.INCIDENT(number=told.number, text=told.text),
            told.at,
        )
        for told in now.incidents
        if told.number > int(job.status.get("incidents") or 0)
    ]


def event(job: Job, name: str, kind: str, reason: str, message: str, at: float) -> Object:
    """Of the resource, as `kubectl describe` shows it. One of the same name is refused."""
    about = {"apiVersion": f"{job.group}/{names.VERSION}", "kind": names.KIND, "name": job.name, "namespace": job.namespace, "uid": job.uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": job.namespace},
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
