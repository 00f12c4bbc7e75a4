"""Pods with workers fit Kubernetes' Pod Security Standard `restricted`, unless their template asks for something else.

Each field of the standard is set where the template says nothing about it: no root, the runtime's seccomp profile, no privilege escalation,
no capabilities. A container whose template asks for root does not fit anyway, and keeps what Kubernetes gives to root. What the template
has in volumes, ports or host namespaces stays as it is, and so may not fit.
"""

from __future__ import annotations

from understudy.schedulers.kubernetes.api import Object

NEEDS_ESCALATION = ("SYS_ADMIN", "CAP_SYS_ADMIN")  # capabilities with which the API server refuses `allowPrivilegeEscalation: false`


def restrict(spec: Object) -> None:
    """Change the spec of a pod."""
    pod = dict(spec.get("securityContext") or {})
    spec["securityContext"] = pod
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    for container in containers:
        container["securityContext"] = dict(container.get("securityContext") or {})
        if not _asks_for_root(pod, container["securityContext"]):
            _restrict_container(container["securityContext"])
    pod.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    if not any(context.get("runAsUser") == 0 for context in (pod, *(each["securityContext"] for each in containers))):
        pod.setdefault("runAsNonRoot", True)


def _asks_for_root(pod: Object, own: Object) -> bool:
    """What the container says comes before what its pod says."""
    either = pod | own
    return either.get("runAsUser") == 0 or either.get("runAsNonRoot") is False


def _restrict_container(context: Object) -> None:
    context.setdefault("capabilities", {"drop": ["ALL"]})
    added = (context["capabilities"] or {}).get("add") or []
    if not context.get("privileged") and not any(each in added for each in NEEDS_ESCALATION):
        context.setdefault("allowPrivilegeEscalation", False)
