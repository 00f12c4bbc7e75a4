"""The pods of a job: those with workers, from its template, and those of its orchestrators."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import asdict

from understudy.common.names import TOKEN_VARIABLE
from understudy.schedulers.kubernetes import names
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.pod_settings import PodSettings
from understudy.schedulers.kubernetes.resource import Job
from understudy.schedulers.kubernetes.restrictions import restrict

GRACE = 120  # seconds from a pod's deletion to its kill: for its ranks to leave
TOLERATED = 300  # seconds for which a taint that drives pods away is tolerated: the same
TLS = "/var/run/understudy/tls"
HOSTNAME = "kubernetes.io/hostname"


def worker(job: Job, number: int, avoid: Collection[str], claim: int = -1, near: str = "", there: Sequence[Object] = ()) -> Object:
    """Return the pod of a node.

    `avoid`: Kubernetes' nodes on which it must not be. `claim`: of a floating spare; `near`: its value of the job's topology key. `there`:
    existing pods of the job, which it must match.
    """
    keys = Keys(job.group)
    spec = job.spec
    first = claim < 0 and number < spec.total()
    name = names.claimed(job.name, claim) if claim >= 0 else names.node(job.name, number)
    template = copy.deepcopy(spec.template)
    made: Object = template.get("spec") or {}
    grace = int(made.get("terminationGracePeriodSeconds") or GRACE)
    settings = PodSettings(
        job.name,
        number,
        spec.pods,
        spec.ranks_per_pod,
        -1 if first else spec.ranks_per_pod,
        claim,
        names.urls(job.name, job.namespace, spec.orchestrators, spec.port, "https" if spec.tls_secret_name else "http"),
        TLS if spec.tls_secret_name else "",
        asdict(job.timeouts()),
        grace,
    )
    container = made["containers"][0]
    container["env"] = [*container.get("env", []), *_worker_environment(job, settings, _secret(job, there))]
    made |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "hostname": name, "subdomain": job.name}
    made.setdefault("automountServiceAccountToken", False)
    if not any(_tolerates_all(each) for each in made.get("tolerations", [])):
        tolerated = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": max(TOLERATED, grace)}
        made["tolerations"] = [*made.get("tolerations", []), tolerated]
    if not _made_earlier(job, there):
        restrict(made)
    if spec.tls_secret_name:
        _mount_tls(made, container, spec.tls_secret_name)
    _avoid(made, avoid)
    if claim >= 0:
        if spec.spares.floating.priority_class_name:
            made["priorityClassName"] = spec.spares.floating.priority_class_name
            made.pop("priority", None)  # it is the value of another class
        if near:
            _prefer(made, spec.topology_key, near)
    labels = {keys.job: job.name, keys.role: names.SPARE, keys.number: str(number)}
    if claim >= 0:
        labels[keys.claim] = str(claim)
    return _pod(job, name, made, template.get("metadata") or {}, labels)


def orchestrator(job: Job, number: int, image: str, avoid: Collection[str] = (), there: Sequence[Object] = ()) -> Object:
    """Return the pod of one of its orchestrators: the image has no torch, and needs none."""
    keys = Keys(job.group)
    spec = job.spec
    urls = names.urls(job.name, job.namespace, spec.orchestrators, spec.port, "https" if spec.tls_secret_name else "http")
    command = ["python", "-P", "-m", "understudy.orchestrator", "--run-dir", "/run/understudy", "--host", "0.0.0.0"]
    command += ["--port", str(spec.port), "--spec-json", job.settings(), "--members", urls, "--number", str(number)]
    command += ["--scheduler", names.NAME]
    if spec.tls_secret_name:
        command += ["--tls-cert", f"{TLS}/tls.crt", "--tls-key", f"{TLS}/tls.key", "--trust", TLS]
    container: Object = {
        "name": "orchestrator",
        "image": image,
        "command": command,
        "env": [
            _secret(job, there),
            {"name": names.JOB_VARIABLE, "value": f"{job.group}/{job.namespace}/{job.name}/{job.uid}"},
            _field(names.NODE_VARIABLE, "metadata.name"),
        ],
        "ports": [{"name": "understudy", "containerPort": spec.port}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "run", "mountPath": "/run/understudy"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    name = names.orchestrators(job.name, number + 1)[-1]
    made: Object = {
        "serviceAccountName": names.account(job.name),
        "hostname": name,
        "subdomain": job.name,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "run", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_apart(keys, job)]}},
    }
    for field in ("imagePullSecrets", "priorityClassName"):
        if value := (spec.template.get("spec") or {}).get(field):
            made[field] = value
    if spec.tls_secret_name:
        _mount_tls(made, container, spec.tls_secret_name)
    _avoid(made, avoid)
    labels = {keys.job: job.name, keys.role: names.ORCHESTRATOR, keys.number: str(number)}
    return _pod(job, name, made, {}, labels)


def _pod(job: Job, name: str, spec: Object, metadata: Object, labels: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": dict(metadata.get("annotations") or {}),
            "ownerReferences": [job.owner()],
        },
        "spec": spec,
    }


def _worker_environment(job: Job, settings: PodSettings, secret: Object) -> list[Object]:
    return [
        {"name": names.POD_VARIABLE, "value": settings.to_json()},
        _field(names.NODE_VARIABLE, "metadata.name"),
        _field(names.ADDRESS_VARIABLE, "status.podIP"),
        _field(names.HOST_VARIABLE, "spec.nodeName"),
        secret,
    ]


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _secret(job: Job, there: Sequence[Object]) -> Object:
    earlier = _secret_named(names.earlier_token(job.name))
    return earlier if _made_earlier(job, there) else _secret_named(names.token(job.name, job.uid))


def _secret_named(name: str) -> Object:
    return {"name": TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}}


def _made_earlier(job: Job, there: Sequence[Object]) -> bool:
    """Return whether an earlier version of the controller has begun the job.

    Then its pods share a secret of another name. They were not restricted either, and the needs of its image are not known, because the
    template cannot be changed.
    """
    earlier = _secret_named(names.earlier_token(job.name))
    return any(earlier in (container.get("env") or []) for pod in there for container in pod["spec"].get("containers") or [])


def _mount_tls(spec: Object, container: Object, secret: str) -> None:
    spec["volumes"] = [*spec.get("volumes", []), {"name": "understudy-tls", "secret": {"secretName": secret}}]
    mount = {"name": "understudy-tls", "mountPath": TLS, "readOnly": True}
    container["volumeMounts"] = [*container.get("volumeMounts", []), mount]


def _tolerates_all(toleration: Object) -> bool:
    """Return whether the toleration covers all taints that evict pods."""
    return not toleration.get("key") and toleration.get("operator") == "Exists" and toleration.get("effect") in (None, "", "NoExecute")


def _avoid(spec: Object, nodes: Collection[str]) -> None:
    """Exclude nodes in addition to the template's terms: each of its terms gets this one, too, because one of them suffices."""
    if not nodes:
        return
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
    wanted = {"key": HOSTNAME, "operator": "NotIn", "values": sorted(nodes)}
    for term in required["nodeSelectorTerms"]:
        term["matchExpressions"] = [*term.get("matchExpressions", []), wanted]
    if not required["nodeSelectorTerms"]:
        required["nodeSelectorTerms"] = [{"matchExpressions": [wanted]}]


def avoided(pod: Object) -> set[str]:
    """Return Kubernetes' nodes that the last term of its affinity, ours if there is one, excludes. `pod`: or a template."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    last = [(term.get("matchExpressions") or [{}])[-1] for term in terms]
    return {value for each in last if (each.get("key"), each.get("operator")) == (HOSTNAME, "NotIn") for value in each.get("values") or []}


def _prefer(spec: Object, key: str, value: str) -> None:
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    term = {"weight": 100, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}
    affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(term)


def _apart(keys: Keys, job: Job) -> Object:
    selector = {"matchLabels": {keys.job: job.name, keys.role: names.ORCHESTRATOR}}
    return {"weight": 100, "podAffinityTerm": {"labelSelector": selector, "topologyKey": HOSTNAME}}
