"""Pods with workers fit Kubernetes' Pod Security Standard `restricted`, unless their template asks for something else.

Each field of the standard is set where the template says nothing about it: no root, the runtime's seccomp profile, no privilege escalation,
no capabilities. What the template has in volumes, ports or host namespaces stays as it is, and so may not fit.
"""

from __future__ import annotations

from understudy.schedulers.kubernetes.api import Object

NEEDS_ESCALATION = ("SYS_ADMIN", "CAP_SYS_ADMIN")  # capabilities with which the API server refuses `allowPrivilegeEscalation: false`


def restrict(spec: Object) -> None:
    """Change the spec of a pod."""
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    contexts = []
    for container in containers:
        context = dict(container.get("securityContext") or {})
        container["securityContext"] = context
        contexts.append(context)
        context.setdefault("capabilities", {"drop": ["ALL"]})
        added = (context["capabilities"] or {}).get("add") or []
        if not context.get("privileged") and not any(each in added for each in NEEDS_ESCALATION):
            context.setdefault("allowPrivilegeEscalation", False)
    pod = dict(spec.get("securityContext") or {})
    spec["securityContext"] = pod
    pod.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    if not any(context.get("runAsUser") == 0 for context in (pod, *contexts)):
        pod.setdefault("runAsNonRoot", True)
