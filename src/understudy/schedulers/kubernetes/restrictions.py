"""Apply Kubernetes' Pod Security Standard `restricted` to containers whose template asks for no root; others stay unchanged.

A container asks for it by `runAsNonRoot: true` or a `runAsUser` other than 0, its own or its pod's. The other requirements of the standard
are set if the template leaves them open: no privilege escalation, no capabilities, the runtime's seccomp profile.

Nothing is set for other containers, because the needs of their image are not known. `runAsNonRoot` stops an image whose user is root or has
a name. Without capabilities, root cannot write to files of other users. Without privilege escalation there is no sudo, and the seccomp
profile forbids binding memory to a NUMA node. Such a pod would violate the standard anyway.

Volumes, ports and host namespaces of the template stay unchanged, and so may violate it.
"""

from __future__ import annotations

from understudy.schedulers.kubernetes.api import Object

NEEDS_ESCALATION = ("SYS_ADMIN", "CAP_SYS_ADMIN")  # capabilities with which the API server rejects `allowPrivilegeEscalation: false`


def restrict(spec: Object) -> None:
    """Change the spec of a pod: security contexts of containers only, since that of the pod applies to all of them."""
    pod = _given(spec.get("securityContext"))
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        own = _given(container.get("securityContext"))
        if _asks_for_no_root(pod | own):
            container["securityContext"] = _restricted(pod, own)


def _given(context: Object | None) -> Object:
    return {key: value for key, value in (context or {}).items() if value is not None}


def _asks_for_no_root(either: Object) -> bool:
    """Return whether the container asks for no root. `either`: its setting, or else its pod's."""
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
