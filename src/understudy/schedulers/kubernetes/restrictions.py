"""A container whose template asks for no root gets the rest of Kubernetes' Pod Security Standard `restricted`; all others stay as they are.

A container asks by `runAsNonRoot: true` or a `runAsUser` other than 0, its own or its pod's. What the standard wants besides, and the
template leaves open, is set then: no privilege escalation, no capabilities, the runtime's seccomp profile.

Nothing is set for a container that does not ask, because what its image needs is not known. `runAsNonRoot` stops an image whose user is
root or has a name. Without capabilities, root cannot write to files of other users. Without privilege escalation there is no sudo, and the
seccomp profile forbids what binds memory to a NUMA node. Such a pod would not fit the standard anyway.

What the template has in volumes, ports or host namespaces stays as it is, and so may not fit.
"""

from __future__ import annotations

from understudy.schedulers.kubernetes.api import Object

NEEDS_ESCALATION = ("SYS_ADMIN", "CAP_SYS_ADMIN")  # capabilities with which the API server refuses `allowPrivilegeEscalation: false`


def restrict(spec: Object) -> None:
    """Change the spec of a pod: security contexts of containers only, since that of the pod is for all of them."""
    pod = _given(spec.get("securityContext"))
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        own = _given(container.get("securityContext"))
        if _asks_for_no_root(pod | own):
            container["securityContext"] = _restricted(pod, own)


def _given(context: Object | None) -> Object:
    return {key: value for key, value in (context or {}).items() if value is not None}


def _asks_for_no_root(either: Object) -> bool:
    """`either`: what the container says, or else its pod."""
    asked = either.get("runAsNonRoot")
    return bool(asked) or (asked is None and either.get("runAsUser", 0) != 0)


def _restricted(pod: Object, own: Object) -> Object:
    made = {"capabilities": {"drop": ["ALL"]}, **own}
    added = made["capabilities"].get("add") or []
    if not made.get("privileged") and not any(each in added for each in NEEDS_ESCALATION):
        made.setdefault("allowPrivilegeEscalation", False)
    for field, value in (("runAsNonRoot", True), ("seccompProfile", {"type": "RuntimeDefault"})):
        if field not in pod:
            made.setdefault(field, value)
    return made
