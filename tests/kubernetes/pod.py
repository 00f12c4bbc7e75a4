"""The kubelet's work for one pod, in a separate thread: compares the actual and the wanted state, does the next thing, reports, waits.

Nothing is remembered that is not in the runtime's files or in the pod's object, so a restarted kubelet goes on with its pods.
A pod whose deletion is requested, or whose object is gone, ends: preStop, SIGTERM, SIGKILL when the grace period is over; then the kubelet
deletes the object.

Simpler than in reality: no liveness and startup probes, no lifecycle hooks but preStop (exec), no events, no limits for resources. The
waits between restarts are shorter.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.kubernetes.api import STRATEGIC, Api, Object, Refused
from tests.kubernetes.probe import Probe
from tests.kubernetes.runtime import Attempt, Sandbox
from tests.kubernetes.status import Seen, pod_status
from tests.kubernetes.volumes import Materials, NotYet, expanded

AGAIN = 0.5  # seconds until something is tried again
SHORTEST_GRACE = 2.0  # even for a pod that is deleted by force; the kubelet's `minimumGracePeriodInSeconds`
WORKSPACE = "/workspace"  # the content of images
BACKOFF, LONGEST_BACKOFF = 1.0, 8.0  # the kubelet's own are 10 and 300 seconds; the first restart is at once


@dataclass(frozen=True)
class Place:
    """A pod thread's view of its node."""

    name: str
    address: str
    disk: Path
    layers: Path
    variables: dict[str, str]  # of every container
    needed: list[str]
    images: Path
    names: str  # who answers for names
    api: Api


class Worker(threading.Thread):
    def __init__(self, place: Place, pod: Object, free_address: Callable[[], str]) -> None:
        metadata = pod["metadata"]
        super().__init__(daemon=True, name=f"pod {metadata['namespace']}/{metadata['name']}")
        self._place, self._free_address = place, free_address
        self._uid: str = metadata["uid"]
        self._first = pod
        self._pod: Object | None = pod
        name = f"{metadata['namespace']}_{metadata['name']}_{self._uid}"
        self.sandbox = Sandbox(place.disk / "pods" / name, place.layers / name)
        self._wake = os.eventfd(0)
        self._waiting: dict[str, tuple[str, str]] = {}  # why a container is not started: reason and message
        self._probes: dict[Path, Probe] = {}
        self._sent: Object = {}
        self._deadline: float | None = None
        self._ended: set[Path] = set()  # attempts that had ended when the last step began
        self._hooks: dict[Path, subprocess.Popen[bytes] | None] = {}  # of attempts that end; None once they have been signalled
        self.over = False

    def tell(self, pod: Object | None) -> None:
        self._pod = pod
        os.eventfd_write(self._wake, 1)

    # The loop

    def run(self) -> None:
        while not self.over:
            try:
                pause = self._step()
            except (OSError, Refused) as error:
                print(f"{self.name}: {type(error).__name__}: {error}", flush=True)
                pause = AGAIN
            if not self.over:
                self._wait(pause)
        os.close(self._wake)

    def _wait(self, pause: float | None) -> None:
        """For the end of a container, for news of the pod, or so many seconds."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        opened = []
        for attempt in self.sandbox.all_attempts():
            if attempt.folder not in self._ended:
                try:
                    opened.append(os.pidfd_open(attempt.waiting))
                except OSError:  # it has ended since the step has looked, or has just begun
                    pause = AGAIN if pause is None else min(pause, AGAIN)
        for hook in self._hooks.values():
            if hook is not None:
                opened.append(os.pidfd_open(hook.pid))
        for descriptor in opened:
            poll.register(descriptor, select.POLLIN)
        found = poll.poll(None if pause is None else max(0.0, pause) * 1000)
        if self._wake in dict(found):
            os.eventfd_read(self._wake)
        for descriptor in opened:
            os.close(descriptor)

    def _step(self) -> float | None:
        self._ended = {attempt.folder for attempt in self.sandbox.all_attempts() if attempt.exit_code is not None}
        pod = self._pod
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return self._end(pod)
        self._first = pod
        status = self._status()
        if status["phase"] in ("Succeeded", "Failed") or pod["status"].get("phase") in ("Succeeded", "Failed"):
            for attempt in self._running():
                attempt.kill()
            if not self._running():
                self.sandbox.remove()
                self._report(self._status(final=True))
            return None
        pauses = [pause for pause in (self._start(pod), self._probe(pod)) if pause is not None]
        if self.sandbox.address is not None:
            Materials(self._place.api, pod, self.sandbox.address, self._place.address).follow_fields(self._memory)
        self._report(self._status())
        return min(pauses) if pauses else None

    @property
    def _memory(self) -> Path:
        return self.sandbox.layers / "volumes"

    def _running(self) -> list[Attempt]:
        return [attempt for attempt in self.sandbox.all_attempts() if attempt.exit_code is None]

    # Starting

    def _start(self, pod: Object) -> float | None:
        """Whatever is to be started now. Seconds until the next may be."""
        if self.sandbox.address is None:
            self.sandbox.create(hostname(pod), self._free_address())
        initial = pod["spec"].get("initContainers") or []
        for container in initial:
            attempts = self.sandbox.attempts(container["name"])
            if not attempts or attempts[-1].exit_code != 0:
                return self._start_one(pod, container, "OnFailure" if pod["spec"]["restartPolicy"] == "Always" else None)
        pauses = [self._start_one(pod, container) for container in pod["spec"]["containers"]]
        return min((pause for pause in pauses if pause is not None), default=None)

    def _start_one(self, pod: Object, container: Object, policy: str | None = None) -> float | None:
        name = container["name"]
        attempts = self.sandbox.attempts(name)
        if attempts:
            code = attempts[-1].exit_code
            policy = policy or pod["spec"]["restartPolicy"]
            if code is None or policy == "Never" or (policy == "OnFailure" and code == 0):
                return None
            wait = attempts[-1].ended + backoff(len(attempts)) - time.time()
            if wait > 0:
                self._waiting[name] = ("CrashLoopBackOff", f"it has ended with {code}")
                return wait
        try:
            specification = self._specification(pod, container)
        except NotYet as missing:
            self._waiting[name] = ("CreateContainerConfigError", str(missing))
            return AGAIN
        self._waiting.pop(name, None)
        self.sandbox.start(name, specification)
        return None

    def _specification(self, pod: Object, container: Object) -> dict[str, Any]:
        address = self.sandbox.address
        assert address is not None
        materials = Materials(self._place.api, pod, address, self._place.address)
        volumes = materials.volumes(self.sandbox.folder / "volumes", self._memory)
        environment = materials.environment(container, {**self._place.variables, "HOSTNAME": hostname(pod)})
        words = [expanded(word, environment) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
        if not words:
            raise NotYet("a container needs a command here: there are no images")
        mounts = []
        for wanted in container.get("volumeMounts") or []:
            source = volumes[wanted["name"]] / wanted.get("subPath", "")
            if not source.exists():
                source.mkdir(parents=True)
            mounts.append((str(source), wanted["mountPath"], bool(wanted.get("readOnly"))))
        image = self._place.images / quote(container["image"], safe="")
        if image.is_dir():
            mounts.append((str(image), WORKSPACE, False))
        mounts.sort(key=lambda mount: mount[1])  # the outer ones first
        namespace = pod["metadata"]["namespace"]
        search = f"{namespace}.svc.cluster.local svc.cluster.local cluster.local"
        own = hostname(pod)
        names = f"{own}.{pod['spec']['subdomain']}.{namespace}.svc.cluster.local {own}" if pod["spec"].get("subdomain") else own
        files = {
            "/etc/hosts": f"127.0.0.1 localhost\n{address} {names}\n",
            "/etc/hostname": f"{own}\n",
            "/etc/resolv.conf": f"search {search}\nnameserver {self._place.names}\noptions ndots:5\n",
        }
        return {
            "words": words,
            "environment": environment,
            "folder": container.get("workingDir") or (WORKSPACE if image.is_dir() else "/"),
            "needed": self._place.needed,
            "files": files,
            "mounts": mounts,
        }

    def _probe(self, pod: Object) -> float | None:
        """Asks those containers that are due. Seconds until the next is."""
        pauses = []
        for container in pod["spec"]["containers"]:
            attempts = self.sandbox.attempts(container["name"])
            if "readinessProbe" in container and attempts and attempts[-1].exit_code is None:
                probe = self._probes.setdefault(attempts[-1].folder, Probe(container, attempts[-1], self.sandbox.address or ""))
                pauses.append(probe.ask())
        return min(pauses) if pauses else None

    # Ending

    def _end(self, pod: Object | None) -> float | None:
        asked = 0.0 if pod is None else float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        deadline = time.monotonic() + max(SHORTEST_GRACE, asked)
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        running = self._running()
        for attempt in running:
            self._tell_to_end(attempt)
        if running and time.monotonic() >= self._deadline:
            for attempt in running:
                attempt.kill()
        if running:
            return max(0.01, self._deadline - time.monotonic())
        self.sandbox.remove()
        if pod is None:
            (self.sandbox.folder / "over").touch()
            self.over = True
            return None
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        with contextlib.suppress(Refused):  # it is another one's name by now, and this one is gone
            self._report(self._status(final=True))
            self._place.api.delete(path, gracePeriodSeconds=0, preconditions={"uid": self._uid})
        return None

    def _tell_to_end(self, attempt: Attempt) -> None:
        """Its hook first, if it has one; then the signal, once."""
        if attempt.folder not in self._hooks:
            hook = self._hook(attempt)
            if hook is not None:
                self._hooks[attempt.folder] = subprocess.Popen(attempt.command(*hook), stdin=subprocess.DEVNULL, start_new_session=True)
                return
            self._hooks[attempt.folder] = None
            attempt.signal(signal.SIGTERM)
            return
        started = self._hooks[attempt.folder]
        if started is not None and started.poll() is not None:
            self._hooks[attempt.folder] = None
            attempt.signal(signal.SIGTERM)

    def _hook(self, attempt: Attempt) -> list[str] | None:
        for container in self._first["spec"]["containers"]:
            if container["name"] == attempt.folder.parent.name:
                found: list[str] | None = ((container.get("lifecycle") or {}).get("preStop") or {}).get("exec", {}).get("command")
                return found
        return None

    # Reporting

    def _status(self, final: bool = False) -> Object:
        ready = {folder for folder, probe in self._probes.items() if probe.ready}
        seen = Seen(self.sandbox, self._place.address, self._waiting, ready, final)
        return pod_status(self._first, seen)

    def _report(self, status: Object) -> None:
        pod = self._first
        there = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions") or []}
        differs = any(there.get(condition["type"]) != condition["status"] for condition in status["conditions"])
        if status == self._sent and not differs:
            return
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        pod["status"] = self._place.api.patch(path, {"metadata": {"uid": self._uid}, "status": status}, STRATEGIC)["status"]
        self._sent = status


def hostname(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def backoff(attempts: int) -> float:
    return 0.0 if attempts < 2 else float(min(BACKOFF * 2 ** (attempts - 2), LONGEST_BACKOFF))
